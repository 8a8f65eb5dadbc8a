package otelcheck

import (
	"bufio"
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/metric"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

const patience = 3 * time.Minute

// counts are the metrics that are sent, and received those that the collector is to have.
var counts = []metric.Metric{
	{Name: "agent_init_a_total", Kind: "counter", Points: []metric.Point{metric.Is(3, "decision", "allow")}},
	{Name: "agent_init_audit_head", Kind: "gauge", Points: []metric.Point{metric.Is(1744)}},
	{Name: "agent_init_c_seconds", Kind: "summary", Points: metric.Took(2_500_000_000, 7)},
}

const received = "agent_init_a_total Sum agent-0 true 3\nagent_init_audit_head Gauge agent-0 1744\nagent_init_c_seconds Summary agent-0 2.5 7\n"

type rig struct {
	*testing.T
	protocol, addr, got, logs string
	program                   string

	mu    sync.Mutex
	place stage.Place
}

func newRig(t *testing.T, protocol string) *rig {
	t.Helper()
	program := os.Getenv("AGENT_INIT_EXPORTER_BIN")
	if program == "" {
		program = filepath.Join(t.TempDir(), "exporter")
		build := exec.Command("go", "build", "-o", program, ".")
		build.Dir, build.Stderr = "../../cmd/agent-init-exporter", os.Stderr
		if err := build.Run(); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	return &rig{T: t, protocol: protocol, addr: l.Addr().String(), got: filepath.Join(dir, "got"), logs: filepath.Join(dir, "log"), program: program}
}

func (r *rig) start(c *exec.Cmd) *exec.Cmd {
	r.Helper()
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		r.Fatal(err)
	}
	return c
}

func (r *rig) kill(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait()
}

func (r *rig) collector() *exec.Cmd {
	r.Helper()
	return r.start(exec.Command(os.Args[0], "collect", strings.TrimSuffix(r.protocol, "/protobuf"), r.addr, r.got))
}

// exporter starts one as the keeper does, and answers it as the keeper does.
func (r *rig) exporter() *exec.Cmd {
	r.Helper()
	at := netip.MustParseAddrPort(r.addr)
	config, err := wire.Memfd("config", stage.ExporterConfig{
		Endpoint: "http://" + r.addr, Host: at.Addr().String(), Port: at.Port(), Protocol: r.protocol, Timeout: 5 * time.Second, Compression: "gzip",
		Resource: map[string]string{"k8s.pod.name": "agent-0"}, Place: r.now(), Metrics: time.Second, Started: time.Now(),
		Version: cmp.Or(os.Getenv("AGENT_INIT_EXPORTER_VERSION"), "dev"),
	})
	if err != nil {
		r.Fatal(err)
	}
	ours, theirs, err := wire.Pair()
	if err != nil {
		r.Fatal(err)
	}
	dir, err := os.Open(r.logs)
	if err != nil {
		r.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		r.Fatal(err)
	}
	c := exec.Command(r.program)
	c.ExtraFiles = []*os.File{null, config, theirs, null, dir} // see stage.Spawn
	r.start(c)
	for _, f := range c.ExtraFiles {
		f.Close()
	}
	go r.serve(wire.Open(ours, wire.MaxText))
	return c
}

func (r *rig) serve(ch *wire.Channel) {
	defer ch.Close()
	for {
		m, _, err := ch.Receive()
		if err != nil {
			return
		}
		switch m.Op {
		case wire.OpOpen:
			reply := wire.Message{Op: m.Op, ID: m.ID}
			f, err := os.Open(filepath.Join(r.logs, m.Name))
			if reply.Err = err != nil; err != nil {
				reply.Flag = wire.NoFile
			}
			if err := ch.Send(reply, f); err != nil {
				return
			}
			if f != nil {
				f.Close()
			}
		case wire.OpMetrics:
			f, err := wire.Memfd("metrics", counts)
			if err != nil {
				return
			}
			err = ch.Send(wire.Message{Op: m.Op, ID: m.ID}, f)
			if f.Close(); err != nil {
				return
			}
		case wire.OpShipped:
			r.mu.Lock()
			r.place = stage.Place{Seq: m.Arg, Sent: m.Stats.Passed, Refused: m.Stats.Refused, Lost: m.Stats.Drops}
			r.mu.Unlock()
		}
	}
}

func (r *rig) now() stage.Place {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.place
}

// received is how often each event has arrived.
func (r *rig) received() (by map[uint64]int, all int) {
	r.Helper()
	by = map[uint64]int{}
	f, err := os.Open(r.got)
	if err != nil {
		return by, 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); all++ {
		var seq uint64
		var kind, name, pod string
		if n, err := fmt.Sscan(s.Text(), &seq, &kind, &name, &pod); n != 4 || kind != "agent_init.dns" || name != fmt.Sprintf("n%d.example", seq) || pod != "agent-0" {
			r.Fatalf("received %q, %v", s.Text(), err)
		}
		by[seq]++
	}
	return by, all
}

func (r *rig) until(what string, is func() bool) {
	r.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatal("waited in vain for " + what)
		}
	}
}

// TestKilled: the collector is killed ten times, and the exporter three times, while events are written and sent. Each
// event arrives, or is counted as lost where the log is too small to keep it.
func TestKilled(t *testing.T) {
	for _, c := range []struct {
		name, protocol string
		size           int64
	}{{"http", policy.OTLPHTTP, 1 << 30}, {"grpc", policy.OTLPgRPC, 1 << 30}, {"small log", policy.OTLPHTTP, 256 << 10}} {
		t.Run(c.name, func(t *testing.T) {
			const kills = 10
			events := 100_000
			if os.Getenv("AGENT_INIT_STRESS") != "" {
				events = 1_000_000
			}
			r, begun := newRig(t, c.protocol), time.Now()
			log, err := audit.Open(audit.Options{Dir: r.logs, MaxSize: c.size, Files: 3})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			collector, exporter := r.collector(), r.exporter()
			defer func() { r.kill(collector); r.kill(exporter) }()
			written := 0
			write := func(n int) {
				for range n {
					written++
					log.Write(audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: fmt.Sprintf("n%d.example", written), Reason: "not in the allowlist"})
				}
			}
			for i := range kills {
				before := r.now().Seq
				write(events / kills / 2)
				r.until("events to be sent", func() bool { return r.now().Seq > before })
				r.kill(collector)
				write(events / kills / 2) // while there is none
				if i%3 == 2 {
					r.kill(exporter)
					exporter = r.exporter()
				}
				collector = r.collector()
			}
			for r.now().Seq < uint64(events) {
				before := r.now().Seq
				r.until("the next event", func() bool { return r.now().Seq > before })
			}
			r.until("the metrics", func() bool { got, err := os.ReadFile(r.got + ".metrics"); return err == nil && string(got) == received })
			by, all := r.received()
			p := r.now()
			t.Logf("%d events: %d arrived, %d of them more than once, %d lost; %v", events, len(by), all-len(by), p.Lost, time.Since(begun).Round(time.Second))
			if uint64(len(by))+p.Lost != uint64(events) || by[uint64(events)] == 0 {
				t.Errorf("%d arrived and %d are counted as lost, of %d", len(by), p.Lost, events)
			}
			if small := c.size < 1<<20; small != (p.Lost > 0) {
				t.Errorf("%d lost of a log of %d bytes", p.Lost, 3*c.size)
			}
		})
	}
}
