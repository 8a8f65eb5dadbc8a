package collector

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"

	"github.com/agent-init/agent-init/internal/metric"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
)

// sink is where the Collector sends. It notes what has come before it says so.
type sink struct {
	mu      sync.Mutex
	events  map[uint64]string // by number
	twice   int
	faults  []string
	changed chan struct{} // closed, and made anew, when something has come
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	request := plogotlp.NewExportRequest()
	if err == nil {
		err = request.UnmarshalProto(body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	s.take(request.Logs())
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func readBody(r *http.Request) ([]byte, error) {
	if r.Header.Get("Content-Encoding") != "gzip" {
		return io.ReadAll(r.Body)
	}
	plain, err := gzip.NewReader(r.Body)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(plain)
}

func (s *sink) take(logs plog.Logs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range logs.ResourceLogs().All() {
		for _, scope := range r.ScopeLogs().All() {
			for _, l := range scope.LogRecords().All() {
				seq, ok := l.Attributes().Get("metadata.sequence")
				content := contentOf(l)
				switch before, known := s.events[uint64(seq.Int())]; {
				case !ok || seq.Int() <= 0:
					s.faults = append(s.faults, "no number: "+content)
				case !known:
					s.events[uint64(seq.Int())] = content
				case before != content:
					s.faults = append(s.faults, before+" came again as "+content)
				default:
					s.twice++
				}
			}
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// contentOf is all of a record but when it was read.
func contentOf(l plog.LogRecord) string {
	attributes := fmt.Sprint(l.Attributes().AsRaw()) // fmt prints maps in order
	return fmt.Sprintf("%d %v %s %s %s", l.Timestamp(), l.SeverityNumber(), l.SeverityText(), l.Body().AsString(), attributes)
}

// await waits until enough says so of what has come.
func (s *sink) await(t *testing.T, what string, ended chan error, log *bytes.Buffer, enough func() bool) {
	t.Helper()
	timeout := time.After(10 * time.Minute)
	for {
		s.mu.Lock()
		done, changed := enough(), s.changed
		have := len(s.events)
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case err := <-ended:
			ended <- err
			t.Fatalf("%s: the Collector has ended: %v\n%s", what, err, log)
		case <-timeout:
			t.Fatalf("%s: %d events have come\n%s", what, have, log)
		}
	}
}

// counted is what a keeper publishes.
func counted(t *testing.T) string {
	t.Helper()
	s := state.State{Published: time.Now(), Started: time.Now(), SelfTest: &state.SelfTest{OK: true},
		Broker: state.Broker{UID: 1, Routes: []state.Route{{Name: "anthropic", Requests: 3}}},
		Audit:  state.Audit{Head: audit.Head{Seq: 9, Hash: strings.Repeat("0f", 32)}}}
	s.Guard.Stats.Denied, s.Guard.Stats.Asked, s.Guard.Stats.AskedNanos = 10, 4, 5e9
	var text strings.Builder
	if err := metric.WriteText(&text, s.Metrics("1.2", time.Now())); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// TestPeerPrometheusText: Prometheus' own parser reads the metrics, and finds of each what it is.
func TestPeerPrometheusText(t *testing.T) {
	text := counted(t)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil || len(families) != strings.Count(text, "# TYPE ") || len(families) < 30 {
		t.Fatalf("%v: %d families of %d\n%s", err, len(families), strings.Count(text, "# TYPE "), text)
	}
	for name, f := range families {
		if f.GetHelp() == "" || strings.HasSuffix(name, "_total") != (f.GetType().String() == "COUNTER") {
			t.Errorf("%s: %v", name, f)
		}
	}
	if m := families["agent_init_dns_upstream_seconds"].GetMetric(); len(m) != 1 || m[0].GetSummary().GetSampleCount() != 4 || m[0].GetSummary().GetSampleSum() != 5 {
		t.Errorf("%v", m)
	}
}

const (
	events = 100_000
	kills  = 10
)

// TestPeerCollector: the Collector, as deploy/telemetry has it configured, is killed ten times while a log is written and
// rotated. Each event arrives under its own number; what comes twice comes with the same content.
func TestPeerCollector(t *testing.T) {
	dir := t.TempDir()
	s := &sink{events: map[uint64]string{}, changed: make(chan struct{})}
	receives := httptest.NewServer(s)
	defer receives.Close()
	quiet := filepath.Join(dir, "quiet.yaml") // its own metrics have a port that others may have
	if err := os.WriteFile(quiet, []byte("service: {telemetry: {metrics: {level: none}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	ended := make(chan error, 1) // of the Collector that was started last
	start := func() *os.Process {
		cmd := exec.Command(os.Args[0], "--config=file:../../deploy/telemetry/collector.yaml", "--config=file:"+quiet, "--feature-gates=stanza.synchronousLogEmitter")
		cmd.Env = append(os.Environ(), "BE_THE_COLLECTOR=1", "AGENT_INIT_LOG="+filepath.Join(dir, "log"), "AGENT_INIT_PLACE="+filepath.Join(dir, "place"),
			"AGENT_INIT_OTLP="+receives.URL)
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { ended <- cmd.Wait() }()
		return cmd.Process
	}
	log, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "log"), MaxSize: 1 << 20, Files: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()

	began := time.Now()
	ahead := make(chan struct{}, events/5) // the log is ahead of what has come by so many at most
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range events {
			ahead <- struct{}{}
			log.Write(event(i))
		}
	}()
	come := 0
	catchUp := func() bool { // called with the sink's lock
		for ; come < len(s.events); come++ {
			select {
			case <-ahead:
			default:
				return false
			}
		}
		return true
	}
	running := start()
	for k := range kills {
		s.await(t, fmt.Sprintf("before kill %d", k+1), ended, &output, func() bool { return catchUp() && len(s.events) >= (k+1)*events/(kills+1) })
		if err := running.Kill(); err != nil {
			t.Fatal(err)
		}
		<-ended
		running = start()
	}
	defer func() { _ = running.Kill(); <-ended }()
	s.await(t, "the writer", ended, &output, func() bool {
		catchUp()
		select {
		case <-written:
			return true
		default:
			return false
		}
	})
	head := log.Head().Seq
	s.await(t, "the rest", ended, &output, func() bool { return uint64(len(s.events)) >= head })
	took := time.Since(began)

	s.mu.Lock()
	defer s.mu.Unlock()
	for seq := range head {
		if _, ok := s.events[seq+1]; !ok {
			t.Errorf("event %d is lost", seq+1)
		}
	}
	if head < events || uint64(len(s.events)) != head || len(s.faults) > 0 {
		t.Errorf("%d of %d events have come; %q", len(s.events), head, s.faults[:min(len(s.faults), 5)])
	}
	files, err := filepath.Glob(filepath.Join(dir, "log", "audit.jsonl*"))
	if err != nil || len(files) < 10 {
		t.Errorf("proves little: %d files, %v", len(files), err)
	}
	mapped(t, s.events)
	t.Logf("%d events in %d files, killed %d times: %d have come, %d of them twice, in %v", head, len(files), kills, len(s.events), s.twice, took)
}

// event is one of the kinds that there are.
func event(i int) audit.Event {
	uid := uint32(1000)
	e := audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: fmt.Sprintf("n%d.example.com", i), Reason: "not in the allowlist", UID: &uid, PID: 7, Comm: "curl"}
	switch i % 4 {
	case 1:
		e.Kind, e.Verdict, e.IP, e.Port, e.Proto, e.In, e.Out = audit.Connect, audit.Allow, "192.0.2.1", 443, "tcp", 10, 20
	case 2:
		e.Kind, e.Asker, e.IP, e.Name, e.Suppressed = audit.Drop, audit.ByOutside, "192.0.2.9", "", 4
	case 3:
		e = audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Reason: fmt.Sprintf("the %dth", i)}
	}
	return e
}

// mapped holds the attributes of the first of each kind.
func mapped(t *testing.T, all map[uint64]string) {
	for what, want := range map[string][]string{
		"agent_init.dns":     {"Warn deny not in the allowlist ", "query.hostname:n0.example.com", "class_uid:4003", "disposition_id:2", "actor.user.uid:1000", "actor.process.name:curl", "count:1 "},
		"agent_init.connect": {"Info allow ", "dst_endpoint.hostname:n1.example.com", "dst_endpoint.ip:192.0.2.1", "dst_endpoint.port:443", "class_uid:4001", "disposition_id:1", "traffic.bytes_in:10", "traffic.bytes_out:20"},
		"agent_init.drop":    {"src_endpoint.ip:192.0.2.9", "agent_init.by:outside", "count:5 ", "class_uid:4001"},
		"agent_init.guard":   {"Error fault the 3th ", "class_uid:6002", "agent_init.prev:"},
	} {
		for seq := uint64(1); ; seq++ {
			content, ok := all[seq]
			if !ok {
				t.Errorf("there is no %s", what)
				break
			}
			if !strings.Contains(content, "event.name:"+what+" ") {
				continue
			}
			for _, w := range want {
				if !strings.Contains(content, w) {
					t.Errorf("%s has no %q: %s", what, w, content)
				}
			}
			break
		}
	}
}
