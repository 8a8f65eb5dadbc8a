package otelcheck

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
)

const patience = 3 * time.Minute

type rig struct {
	*testing.T
	protocol, addr, got, logs, cursor string
	program                           string
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
	return &rig{t, protocol, l.Addr().String(), filepath.Join(dir, "got"), filepath.Join(dir, "log"), filepath.Join(dir, "cursor"), program}
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
	return r.start(exec.Command(os.Args[0], "collect", r.protocol, r.addr, r.got))
}

func (r *rig) exporter() *exec.Cmd {
	r.Helper()
	config, err := json.Marshal(map[string]any{"File": audit.FileName, "Protocol": r.protocol, "Endpoint": "http://" + r.addr,
		"Resource": map[string]string{"k8s.pod.name": "agent-0"}})
	if err != nil {
		r.Fatal(err)
	}
	told := filepath.Join(r.TempDir(), "config")
	if err := os.WriteFile(told, config, 0o600); err != nil {
		r.Fatal(err)
	}
	c := exec.Command(r.program)
	for name, flags := range map[string]int{told: os.O_RDONLY, r.logs: os.O_RDONLY, r.cursor: os.O_RDWR | os.O_CREATE} {
		f, err := os.OpenFile(name, flags, 0o600)
		if err != nil {
			r.Fatal(err)
		}
		defer f.Close()
		c.ExtraFiles = append(c.ExtraFiles, f)
	}
	order := map[string]int{told: 0, r.logs: 1, r.cursor: 2}
	files := make([]*os.File, 3)
	for _, f := range c.ExtraFiles {
		files[order[f.Name()]] = f
	}
	c.ExtraFiles = files
	return r.start(c)
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

func (r *rig) place() (p struct{ Seq, Sent, Lost uint64 }) {
	data, err := os.ReadFile(r.cursor)
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		r.Fatal(err)
	}
	return p
}

// TestKilled: the collector is killed ten times, and the exporter three times, while events are written and sent. Each
// event arrives, or is counted as lost where the log is too small to keep it.
func TestKilled(t *testing.T) {
	for _, c := range []struct {
		name, protocol string
		size           int64
	}{{"http", "http", 64 << 20}, {"grpc", "grpc", 64 << 20}, {"small log", "http", 256 << 10}} {
		t.Run(c.name, func(t *testing.T) {
			const events, kills = 100_000, 10
			r := newRig(t, c.protocol)
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
				before := r.place().Seq
				write(events / kills / 2)
				r.until("events to be sent", func() bool { return r.place().Seq > before })
				r.kill(collector)
				write(events / kills / 2) // while there is none
				if i%3 == 2 {
					r.kill(exporter)
					exporter = r.exporter()
				}
				collector = r.collector()
			}
			r.until("the last event", func() bool { return r.place().Seq == events })
			by, all := r.received()
			p := r.place()
			t.Logf("%d events: %d arrived, %d of them more than once, %d lost", events, len(by), all-len(by), p.Lost)
			if uint64(len(by))+p.Lost != events || by[events] == 0 {
				t.Errorf("%d arrived and %d are counted as lost, of %d", len(by), p.Lost, events)
			}
			if small := c.size < 1<<20; small != (p.Lost > 0) {
				t.Errorf("%d lost of a log of %d bytes", p.Lost, 3*c.size)
			}
		})
	}
}
