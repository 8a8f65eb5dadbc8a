package attack

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

const (
	collectorHost = "otel.example.com"
	collector4    = "45.30.50.9"
	collector6    = "2a0f:30::59"
	exporterPath  = "/usr/local/bin/agent-init-exporter"
)

// exporterBinary is the exporter under test: beside agent-init, or built once.
func exporterBinary(t *testing.T) string {
	t.Helper()
	if bin := os.Getenv("AGENT_INIT_BIN"); bin != "" {
		return filepath.Join(filepath.Dir(bin), "agent-init-exporter")
	}
	path, err := buildExporter()
	must(t, err)
	return path
}

var buildExporter = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "agent-init-exporter-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "agent-init-exporter")
	build := exec.Command("go", "build", "-trimpath", "-o", path, ".")
	build.Dir, build.Env = "../../cmd/agent-init-exporter", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the exporter: %w\n%s", err, out)
	}
	return path, os.Chmod(dir, 0o755)
})

// receiver is a collector, by OTLP over HTTP and gRPC.
type receiver struct {
	mu     sync.Mutex
	status int                // of its answers over HTTP; 0: 200. Any is UNAVAILABLE over gRPC
	events map[uint64]int     // how often each came, by its number
	words  map[string]int     // texts of all records, by attribute and value
	counts map[string]float64 // the last value of each metric
	asked  int
	auth   []string
}

func newReceiver() *receiver {
	return &receiver{events: map[uint64]int{}, words: map[string]int{}, counts: map[string]float64{}}
}

func (c *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	kind, path, compressed := "application/x-protobuf", "/v1/logs", r.Header.Get("Content-Encoding") == "gzip"
	overGRPC, metrics := r.Header.Get("Content-Type") == "application/grpc", strings.Contains(strings.ToLower(r.URL.Path), "metrics")
	if metrics {
		path = "/v1/metrics"
	}
	if overGRPC && len(data) >= 5 { // https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md: compressed or not, and the length
		kind, path = "application/grpc", "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
		if metrics {
			path = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
		}
		compressed, data = data[0] == 1, data[5:]
	}
	if compressed && err == nil {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(data)); err == nil {
			data, err = io.ReadAll(z)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !metrics {
		c.asked++
	}
	c.auth = append(c.auth, r.Header.Get("Api-Key"))
	w.Header().Set("Content-Type", kind)
	switch {
	case err != nil || r.URL.Path != path || r.Header.Get("Content-Type") != kind:
		w.WriteHeader(http.StatusBadRequest)
	case c.status != 0 && overGRPC:
		w.Header().Set("Grpc-Status", "14")
	case c.status != 0:
		w.WriteHeader(c.status)
	default:
		if metrics {
			c.measure(data)
		} else {
			c.take(data)
		}
		if overGRPC {
			_, _ = w.Write(make([]byte, 5)) // an empty message
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		}
	}
}

func (c *receiver) take(data []byte) {
	// ExportLogsServiceRequest.resource_logs.scope_logs.log_records (opentelemetry/proto/logs/v1/logs.proto)
	for _, logs := range fields(data, 1) {
		for _, resource := range fields(logs, 1) {
			c.note("resource ", resource, 1)
		}
		for _, scope := range fields(logs, 2) {
			for _, record := range fields(scope, 2) {
				c.note("", record, 6)
			}
		}
	}
}

func (c *receiver) measure(data []byte) {
	// ExportMetricsServiceRequest.resource_metrics.scope_metrics.metrics (opentelemetry/proto/metrics/v1/metrics.proto)
	for _, resource := range fields(data, 1) {
		for _, scope := range fields(resource, 2) {
			for _, m := range fields(scope, 2) {
				for _, kind := range []uint64{5, 7} { // gauge, sum
					for _, points := range fields(m, kind) {
						for _, p := range fields(points, 1) {
							for _, v := range fields(p, 4) { // as_double
								c.counts[string(fields(m, 1)[0])] = math.Float64frombits(binary.LittleEndian.Uint64(v))
							}
						}
					}
				}
			}
		}
	}
}

func (c *receiver) count(name string) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[name]
}

// note takes in the attributes of a message, which are its fields of that number.
func (c *receiver) note(prefix string, message []byte, number uint64) {
	for _, attr := range fields(message, number) {
		key, value := string(fields(attr, 1)[0]), fields(attr, 2)[0]
		if texts := fields(value, 1); len(texts) > 0 {
			c.words[prefix+key+"="+string(texts[0])]++
		}
		if key == "metadata.sequence" {
			n, _ := binary.Uvarint(value[1:]) // int_value
			c.events[n]++
		}
	}
}

// fields are those of a message of protobuf that have a number, and a length or a size that is fixed.
func fields(message []byte, number uint64) (out [][]byte) {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return out
		}
		message = message[n:]
		size := uint64(0)
		switch tag & 7 {
		case 0:
			_, n = binary.Uvarint(message)
			message = message[n:]
			continue
		case 1:
			size = 8
		case 5:
			size = 4
		case 2:
			size, n = binary.Uvarint(message)
			message = message[n:]
		}
		if tag>>3 == number {
			out = append(out, message[:size])
		}
		message = message[size:]
	}
	return out
}

func (c *receiver) answers(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.asked = status, 0
}

func (c *receiver) wasAsked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

func (c *receiver) has(word string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.words[word] > 0
}

// missing are the numbers of events in the log that have not come, and those that came more than once.
func (c *receiver) missing(w *world) (missing, twice []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range w.auditOf(func(event) bool { return true }) {
		if c.events[e.Seq] == 0 {
			missing = append(missing, e.Seq)
		} else if c.events[e.Seq] > 1 {
			twice = append(twice, e.Seq)
		}
	}
	return missing, twice
}

// told is what the status says of telemetry.
func told(w *world) (t struct {
	OK                            bool
	Why, Fault                    string
	Seq, Sent, Lost, Refused, UID float64
}) {
	w.Helper()
	s, _ := w.status()
	m, _ := s["telemetry"].(map[string]any)
	t.OK, _ = m["ok"].(bool)
	t.Why, _ = m["why"].(string)
	t.Fault, _ = m["fault"].(string)
	for name, to := range map[string]*float64{"seq": &t.Seq, "sent": &t.Sent, "lost": &t.Lost, "refused": &t.Refused, "uid": &t.UID} {
		*to, _ = m[name].(float64)
	}
	return t
}

// scraped asks for the metrics from outside.
func (w *world) scraped(a netip.Addr) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), lab.Patience)
	defer cancel()
	conn, err := w.lab.Internet.Dial(ctx, "tcp", target(a.String(), 9464), netip.AddrPort{})
	if err != nil {
		w.Errorf("Prometheus does not reach %s: %v", a, err)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(lab.Patience))
	fmt.Fprint(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
	if data, err := io.ReadAll(conn); err != nil || !strings.Contains(string(data), "\nagent_init_audit_head_hash{digits=") {
		w.Errorf("Prometheus at %s: %v: %s", a, err, data)
	}
}

// exporters are the processes of that program.
func exporters(w *world) (all []inmate) {
	for _, p := range inmates(w.T, w.agent) {
		if strings.HasPrefix(p.args, exporterPath) {
			all = append(all, p)
		}
	}
	return all
}

const telemetrySecret = "canary-of-telemetry"

// telemetered is a world whose log goes to a collector.
type telemetered struct {
	*world
	c *receiver
}

// telemeter has the log sent, with more settings of telemetry.
func telemeter(t *testing.T, l *lab.Lab, more string, allowed ...string) telemetered {
	t.Helper()
	c := newReceiver()
	l.DNS.SetAddrs(collectorHost, collector4, collector6)
	l.Web.Handle(collectorHost, c)
	w := confineIn(t, l, strings.Join(append(allowed, "ok.test\n"), "\n"), lab.BoxOptions{
		Binds: []lab.Bind{{Source: exporterBinary(t), Target: exporterPath}},
		Env:   []string{"OTEL_EXPORTER_OTLP_HEADERS=api-key=" + telemetrySecret, "OTEL_SERVICE_NAME=agents-of-the-lab"},
		Files: []lab.File{
			{Path: "/etc/agent-init/policy.yaml", Data: []byte("telemetry: {endpoint: 'https://" + collectorHost + "'" + more + "}\n")},
			{Path: "/run/secrets/otel", Data: []byte("api-key=" + telemetrySecret + "\n"), Mode: 0o400},
			{Path: bundle, Data: l.CA.PEM},
		}})
	return telemetered{w, c}
}

// arrives has the agent do something, which the collector is told.
func (w telemetered) arrives(name string) {
	w.Helper()
	w.blocked("resolve", name)
	if !eventually(0, func() bool { return w.c.has("query.hostname=" + name) }) {
		w.Fatalf("%s does not arrive: %+v\n%s", name, told(w.world), w.agent.Stderr())
	}
}

// complete fails the test unless all that the log has arrives, once.
func (w telemetered) complete(when string) {
	w.Helper()
	var missing, twice []uint64
	if !eventually(0, func() bool { missing, twice = w.c.missing(w.world); return len(missing) == 0 }) || len(twice) > 0 {
		w.Errorf("%s: events %d are missing, and %d came twice: %+v", when, missing, twice, told(w.world))
	}
}

// TestLabTelemetry: the log and the metrics arrive at the collector. The agent neither reaches it, nor learns the headers;
// hostile code in the exporter's place reaches the collector, and nothing else.
func TestLabTelemetry(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := telemeter(t, l, ", environment: true, headers: 'file:/run/secrets/otel', metrics: 1s, prometheus: ':9464'")
	c := w.c
	w.arrives("first.evil.test")
	w.complete("at first")
	if !c.has("resource service.name=agents-of-the-lab") || !c.has("resource agent_init.user=agent") {
		t.Errorf("the resource lacks something: %v", c.words)
	}

	// The metrics come as well, with the head of the log. Prometheus has them from outside, and nobody from in here.
	if !eventually(0, func() bool {
		return c.count("agent_init_dns_queries_total") > 0 && c.count("agent_init_audit_head") > 0 && c.count("agent_init_audit_head_hash") > 0
	}) {
		t.Errorf("the metrics are %v: %+v", c.counts, told(w.world))
	}
	for _, a := range []netip.Addr{w.box.Addr4(), w.box.Addr6()} {
		w.scraped(a)
		w.blocked("tcp", target(a.String(), 9464))
	}
	for _, a := range []string{w.box.Addr4().String(), w.box.Addr6().String(), "127.0.0.1", "127.9.9.9", "::1"} {
		w.blocked("tcp", "-send", "GET /metrics HTTP/1.0\r\n\r\n", target(a, 9464))
		r := w.root("/usr/local/bin/poke", "tcp", target(a, 9464))
		if p, err := lab.ParsePoke(r.Stdout); err != nil || p.OK {
			t.Errorf("root in here: %s", r)
		}
	}

	// The collector is nobody's but the exporter's.
	who := exporters(w.world)
	if len(who) != 1 || who[0].uid == 0 || who[0].uid == lab.AgentUID || who[0].gid == who[0].uid {
		t.Fatalf("the exporters are %+v", who)
	}
	turned := func(args ...string) lab.Poke {
		t.Helper()
		r := w.box.Exec(lab.Cmd{Args: append([]string{"/usr/local/bin/poke"}, args...), UID: who[0].uid, GID: who[0].gid})
		p, err := lab.ParsePoke(r.Stdout)
		if err != nil {
			t.Fatalf("poke %v: %v: %s", args, err, r)
		}
		return p
	}
	w.works("http", "-ca", bundle, "https://ok.test/") // leased to the agent
	w.box.ForgetPackets()
	l.DNS.Forget()
	ok4, ok6 := named("ok.test")
	for _, a := range []string{collector4, collector6} {
		w.blocked("tcp", target(a, 443))
		w.blocked("http", "-ca", bundle, "-addr", target(a, 443), "https://"+collectorHost+"/v1/logs")
		if p := turned("-patient", "tcp", target(a, 443)); !p.OK {
			t.Errorf("proves nothing: %s is not leased to the exporter: %s", a, p)
		}
		for _, other := range []inmate{{uid: 0}, {uid: who[0].uid, gid: lab.AgentUID}, {uid: lab.AgentUID, gid: who[0].gid}} {
			r := w.box.Exec(lab.Cmd{Args: []string{"/usr/local/bin/poke", "tcp", target(a, 443)}, UID: other.uid, GID: other.gid})
			if p, err := lab.ParsePoke(r.Stdout); err != nil || p.OK {
				t.Errorf("uid %d, gid %d reaches the collector: %s", other.uid, other.gid, r)
			}
		}
	}
	w.blocked("resolve", collectorHost)
	for _, args := range [][]string{
		{"tcp", "-send", "leak", target(ok4.String(), 443)}, {"tcp", "-send", "leak", target(ok6.String(), 443)}, {"tcp", "-send", "leak", target(collector4, 80)},
		{"udp", "-send", "leak", "-timeout", "300ms", target(collector4, 443)}, {"dns", "127.0.0.1:53", "leak.evil.test", "A"}, {"resolve", "ok.test"},
		{"tcp", "-send", "leak", target(w.box.Gateway4().String(), 443)}, {"ping", collector4},
	} {
		if p := turned(args...); p.OK {
			t.Errorf("in the exporter's place: %v: %s", args, p)
		}
	}
	toCollector := lab.Any(lab.ToAddr(collector4), lab.ToAddr(collector6))
	w.sealed(lab.Not(func(p *lab.Packet) bool {
		return toCollector(p) && p.Proto == unix.IPPROTO_TCP && p.DstPort == 443 || !notGuards(p)
	}))
	w.unasked("evil.test")
	if p := turned("-patient", "tcp", target(collector4, 443)); !p.OK {
		t.Errorf("proves nothing: the exporter does not reach the collector: %s", p)
	}

	// Nothing tells the headers, neither by a file nor to the agent.
	if !slices.Contains(c.auth, telemetrySecret) {
		t.Errorf("the headers did not come: %q", c.auth)
	}
	for _, file := range []string{"/var/log/agent-init/audit.jsonl", "/run/agent-init/status.json", "/run/agent-init/policy.jsonl", "/run/agent-init/agent.json"} {
		if data, err := w.box.ReadFile(file); err != nil || strings.Contains(string(data), telemetrySecret) {
			t.Errorf("%s has the headers (%v)", file, err)
		}
	}
	if r := w.launch("sh", "-c", "env; cat /proc/*/environ /run/secrets/otel").Wait(0); w.mode == "" && strings.Contains(r.Stdout, telemetrySecret) {
		t.Error("the agent has the headers")
	}
}

// TestLabTelemetryFaults: each event of the log arrives at the collector once, whatever befalls the way there.
func TestLabTelemetryFaults(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := telemeter(t, l, "")
	c := w.c
	w.arrives("first.evil.test")
	// A collector that is ill holds nobody up, and gets all of it later.
	c.answers(http.StatusServiceUnavailable)
	w.blocked("resolve", "second.evil.test")
	if !eventually(0, func() bool { return strings.Contains(told(w.world).Why, "503") && c.wasAsked() > 1 }) {
		t.Errorf("the status does not say that the collector is ill: %+v", told(w.world))
	}
	if _, code := w.status(); code != 0 {
		t.Error("an ill collector makes the container unhealthy")
	}
	w.works("http", "-ca", bundle, "https://ok.test/")
	for _, p := range exporters(w.world) {
		must(t, unix.Kill(p.host, unix.SIGKILL))
	}
	c.answers(0)
	w.arrives("third.evil.test")
	w.complete("after a collector that was ill and an exporter that was killed")

	// What it refuses for good is counted, and not sent again.
	was := told(w.world)
	c.answers(http.StatusBadRequest)
	w.blocked("resolve", "refused.evil.test")
	if !eventually(0, func() bool { return told(w.world).Refused > was.Refused }) {
		t.Errorf("not counted as refused: %+v", told(w.world))
	}
	c.answers(0)
	w.arrives("fourth.evil.test")
	if !eventually(0, func() bool { return told(w.world).Why == "" }) || told(w.world).Lost != 0 || c.has("query.hostname=refused.evil.test") {
		t.Errorf("after a refusal: %+v", told(w.world))
	}

	// A collector that somebody else vouches for gets nothing.
	other, err := lab.NewCA()
	must(t, err)
	must(t, w.box.WriteFile("/etc/agent-init/other.pem", other.PEM, 0o644))
	policy := "telemetry: {endpoint: 'https://" + collectorHost + "', ca: 'file:/etc/agent-init/%s'}\n"
	must(t, w.box.WriteFile("/etc/agent-init/policy.yaml", fmt.Appendf(nil, policy, "other.pem"), 0o644))
	c.answers(0)
	if r := w.root("agent-init", "reload"); r.Code != 0 {
		t.Fatal(r)
	}
	w.blocked("resolve", "fifth.evil.test")
	if !eventually(0, func() bool { return strings.Contains(told(w.world).Why, "certificate") }) {
		t.Errorf("another's certificate is taken: %+v", told(w.world))
	}
	if c.has("query.hostname=fifth.evil.test") {
		t.Error("the log went to a collector that nobody vouches for")
	}
	must(t, w.box.WriteFile("/etc/agent-init/right.pem", l.CA.PEM, 0o644))
	must(t, w.box.WriteFile("/etc/agent-init/policy.yaml", fmt.Appendf(nil, policy, "right.pem"), 0o644))
	if r := w.root("agent-init", "reload"); r.Code != 0 {
		t.Fatal(r)
	}
	w.arrives("sixth.evil.test")
	if !c.has("query.hostname=fifth.evil.test") {
		t.Error("what waited for the right certificate did not arrive")
	}
	w.audited("that the collector took nothing", func(e event) bool {
		return strings.HasPrefix(e.Reason, "telemetry: "+collectorHost+":443 takes nothing")
	})
	if r := w.root("agent-init", "status"); r.Code != 0 || !strings.Contains(r.Stdout, "telemetry  "+collectorHost+":443 by http/protobuf: ") {
		t.Error(r)
	}
}

// TestLabTelemetryHostile: what an agent tries on the way to the collector.
func TestLabTelemetryHostile(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	const alias = "alias.test"
	l.DNS.SetAddrs(alias, collector4, collector6)
	w := telemeter(t, l, ", environment: true", alias)
	c := w.c
	w.arrives("first.evil.test")

	// A name of its own that leads to the collector's machine is looked into, and is no way to the collector by its name.
	w.works("http", "-ca", bundle, "https://"+alias+"/")
	for _, a := range []string{collector4, collector6} {
		w.blocked("http", "-ca", bundle, "-addr", target(a, 443), "https://"+collectorHost+"/v1/logs")
		w.blocked("http", "-addr", target(a, 443), "http://"+collectorHost+":443/v1/logs")
	}

	// The exporter is not the agent's to read, to end, or to write for.
	pid := exporters(w.world)[0].pid
	r := w.launch("sh", "-c", fmt.Sprintf(`cd /proc/%d
		for f in environ mem maps fd/5 root/etc cwd; do head -c 1 $f >/dev/null 2>&1 && echo READ $f; done
		ls fd 2>/dev/null && echo READ fd
		kill -9 %d && echo KILLED
		for f in telemetry.json audit.jsonl audit.jsonl.1 audit.head x; do echo x 2>/dev/null >>/var/log/agent-init/$f && echo WROTE $f; done
		cp /usr/local/bin/poke "$(printf '/tmp/a\n{"seq":9')" && "$(printf '/tmp/a\n{"seq":9')" resolve forged.evil.test
		exit 0`, pid, pid)).Wait(0)
	for _, bad := range []string{"READ", "KILLED", "WROTE"} {
		if strings.Contains(r.Stdout, bad) {
			t.Errorf("the agent: %s", r)
		}
	}

	// What it makes up stays a value of its own event.
	for _, name := range []string{"a\\010b.evil.test", strings.Repeat("x", 63) + "." + strings.Repeat("y", 63) + "." + strings.Repeat("z", 63) + ".evil.test", "\\000\\255.evil.test"} {
		w.poke("dns", "127.0.0.1:53", name, "A")
	}
	w.arrives("last.evil.test")
	w.complete("after forgeries")
	c.mu.Lock()
	defer c.mu.Unlock()
	for word := range c.words {
		if strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' }) || len(word) > 1024 {
			t.Errorf("the collector was told %q", word)
		}
	}
	if len(exporters(w.world)) != 1 || exporters(w.world)[0].pid != pid {
		t.Error("the exporter was ended")
	}
}

// TestLabTelemetryMoved: a collector whose name leads to a machine in here, or to a cloud's own, gets nothing.
func TestLabTelemetryMoved(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("moved.example.com", "127.0.0.1", "169.254.169.254", "10.9.8.7", "::1", "fd00::7")
	w := confineIn(t, l, "ok.test\n", lab.BoxOptions{
		Binds: []lab.Bind{{Source: exporterBinary(t), Target: exporterPath}},
		Files: []lab.File{
			{Path: "/etc/agent-init/policy.yaml", Data: []byte("telemetry: {endpoint: 'https://moved.example.com', metrics: none}\n")},
			{Path: bundle, Data: l.CA.PEM},
		}})
	if !eventually(0, func() bool { return strings.Contains(told(w).Why, "address") }) {
		t.Errorf("%+v", told(w))
	}
	w.sealed(notGuards)
	w.works("http", "-ca", bundle, "https://ok.test/")
}

// TestLabTelemetryRotates: over gRPC, a collector that is away until the log has rotated past what it was to get has each
// event once, or it is counted as lost; also by an exporter that was killed in between.
func TestLabTelemetryRotates(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	c := newReceiver()
	l.DNS.SetAddrs(collectorHost, collector4, collector6)
	l.Web.Handle(collectorHost, c)
	w := confineIn(t, l, "ok.test\n", lab.BoxOptions{
		Binds: []lab.Bind{{Source: exporterBinary(t), Target: exporterPath}},
		Files: []lab.File{
			{Path: "/etc/agent-init/policy.yaml", Data: []byte("log: {max_size: 64KiB, files: 2}\ntelemetry: {endpoint: 'https://" + collectorHost + "', protocol: grpc}\n")},
			{Path: bundle, Data: l.CA.PEM},
		}})
	arrives := func(name string) {
		t.Helper()
		w.blocked("resolve", name)
		if !eventually(0, func() bool { return c.has("query.hostname=" + name) }) {
			t.Fatalf("%s does not arrive: %+v\n%s", name, told(w), w.agent.Stderr())
		}
	}
	arrives("first.evil.test")
	c.answers(http.StatusServiceUnavailable)
	w.blocked("resolve", "second.evil.test")
	if !eventually(0, func() bool { return strings.Contains(told(w).Why, "Unavailable") && c.wasAsked() > 1 }) {
		t.Fatalf("the status does not say that the collector is away: %+v", told(w))
	}
	place := uint64(told(w).Seq)
	rotated := func() bool { // the older of both files begins behind it
		data, err := w.box.ReadFile(auditFile + ".1")
		line, _, _ := strings.Cut(string(data), "\n")
		var e event
		return err == nil && json.Unmarshal([]byte(line), &e) == nil && e.Seq > place+1
	}
	for round := 0; !rotated(); round++ {
		if round == 40 {
			t.Fatal("the log does not rotate")
		}
		w.poke("dns", "-n", "1000", "-c", "8", "8.8.8.8:53", fmt.Sprintf("{n}-%d.%s.evil.test", round, strings.Repeat("x", 60)), "A")
	}
	w.works("http", "-ca", bundle, "https://ok.test/") // the agent is none the worse
	for _, p := range exporters(w) {
		must(t, unix.Kill(p.host, unix.SIGKILL))
	}
	c.answers(0)
	arrives("third.evil.test")
	var came, twice uint64
	count := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		came, twice = uint64(len(c.events)), 0
		for _, times := range c.events {
			if times > 1 {
				twice++
			}
		}
		at := told(w)
		return at.Why == "" && at.Lost > 0 && came+uint64(at.Lost) == uint64(at.Seq) && uint64(at.Sent) == came
	}
	if !eventually(0, count) || twice > 0 {
		t.Errorf("%d came, %d of them twice: %+v", came, twice, told(w))
	}
	w.audited("that events were lost", func(e event) bool { return strings.Contains(e.Reason, "when it was their turn to be sent") })
}

// TestLabTelemetryGateway: a gateway sends what its log has of the agents, who don't reach the collector.
func TestLabTelemetryGateway(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	c := newReceiver()
	l.DNS.SetAddrs(collectorHost, collector4, collector6)
	l.Web.Handle(collectorHost, c)
	w := startIn(t, l, "ok.test\n", lab.BoxOptions{
		Gateway: true, Forwards: true, Binds: []lab.Bind{{Source: exporterBinary(t), Target: exporterPath}},
		Files: []lab.File{
			{Path: "/etc/agent-init/policy.yaml", Data: []byte("telemetry: {endpoint: 'https://" + collectorHost + "', prometheus: ':9464'}\n")},
			{Path: bundle, Data: l.CA.PEM},
		}}, "agent-init", "gateway", "--inside", "eth1")
	w.ready()
	k := &kept{world: w}
	k.agent = k.another()
	k.blocked("resolve", "first.evil.test")
	if !eventually(0, func() bool {
		return c.has("query.hostname=first.evil.test") && c.has("resource agent_init.mode=gateway")
	}) {
		t.Fatalf("what an agent did does not arrive: %+v\n%s", told(w), w.agent.Stderr())
	}
	k.blocked("resolve", collectorHost)
	for _, a := range []string{collector4, collector6} {
		k.blocked("tcp", target(a, 443))
		k.blocked("http", "-insecure", "-addr", target(a, 443), "https://"+collectorHost+"/v1/logs")
	}
	for _, a := range []netip.Addr{k.box.Inside4(), k.box.Inside6(), k.box.Addr4(), k.box.Addr6()} {
		k.blocked("tcp", "-send", "GET /metrics HTTP/1.0\r\n\r\n", target(a.String(), 9464))
	}
	w.scraped(k.box.Addr4())
	k.works("http", "-insecure", "https://ok.test/")
}

// TestLabTelemetryCeiling: a ceiling counts from when it is there, also one that stops what telemetry was started with.
func TestLabTelemetryCeiling(t *testing.T) {
	lab.Require(t)
	w := telemeter(t, lab.New(t, lab.Options{}), ", prometheus: ':9464'", "ok2.test")
	w.works("http", "https://ok2.test/")
	w.scraped(w.box.Addr4())
	if r := w.root("mkdir", "-p", "/etc/agent-init/ceiling.d"); r.Code != 0 {
		t.Fatal(r)
	}
	must(t, w.box.WriteFile("/etc/agent-init/ceiling.d/all.txt", []byte("ok.test\n"+collectorHost+"\n"), 0o644))
	if r := w.root("agent-init", "reload"); r.Code != 0 {
		t.Error(r)
	}
	w.blocked("resolve", "ok2.test")
	w.works("http", "https://ok.test/")
	if conn, err := w.lab.Internet.Dial(t.Context(), "tcp", target(w.box.Addr4().String(), 9464), netip.AddrPort{}); err == nil {
		conn.Close()
		t.Error("Prometheus connects, and the ceiling lets nobody in there")
	}
	w.arrives("evil.test")
}

// TestLabTelemetryNotThere: without the exporter's program the start is refused, and says what to do.
func TestLabTelemetryNotThere(t *testing.T) {
	w := start(t, "ok.test\n", lab.BoxOptions{Files: []lab.File{
		{Path: "/etc/agent-init/policy.yaml", Data: []byte("telemetry: {endpoint: 'https://" + collectorHost + "'}\n")},
	}}, "agent-init", "run", "--", "true")
	r := w.agent.Wait(time.Minute)
	if r.Code != 78 || !strings.Contains(r.Stderr, "telemetry: the image has no "+exporterPath) || !strings.Contains(r.Stderr, "COPY --from=agent-base") {
		t.Error(r)
	}
}
