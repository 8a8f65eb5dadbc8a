package gvisor

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// confineIn starts agent-init with a command that does nothing, and waits until it
// has proved itself.
func confineIn(t *testing.T, l *lab.Lab, list string, o options) *sandbox {
	t.Helper()
	s := bootIn(t, l, list, o, "agent-init", "run", "--", "sleep", "infinity")
	s.ready()
	s.box.ForgetPackets()
	s.lab.DNS.Forget()
	s.lab.ForgetConns()
	s.lab.Web.Forget()
	return s
}

// ready waits until the sandbox runs and agent-init says that it is confined.
func (s *sandbox) ready() {
	s.Helper()
	var r result
	if !s.eventually(func() bool {
		r = s.as(0, "agent-init", "wait", "--timeout", "1s")
		return r.code == 0 || s.over()
	}) || r.code != 0 {
		s.Fatalf("not ready: %s", r)
	}
}

func (s *sandbox) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// eventually tries until ok, or until patience is over.
func (s *sandbox) eventually(ok func() bool) bool {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if ok() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// poke tries one operation with exactly the agent's credentials.
func (s *sandbox) poke(args ...string) lab.Poke {
	s.Helper()
	return s.parse(args, s.as(0, append([]string{"agent-init", "exec", "--", "poke"}, args...)...))
}

// pokeAs tries one operation as "docker exec -u uid" would.
func (s *sandbox) pokeAs(uid uint32, args ...string) lab.Poke {
	s.Helper()
	return s.parse(args, s.as(uid, append([]string{"poke"}, args...)...))
}

func (s *sandbox) parse(args []string, r result) lab.Poke {
	s.Helper()
	p, err := lab.ParsePoke(r.stdout)
	if err != nil {
		s.Fatalf("poke %v: %v\n%s", args, err, r)
	}
	return p
}

// works fails the test if the operation did not do what an honest program wanted.
func (s *sandbox) works(args ...string) lab.Poke {
	s.Helper()
	p := s.poke(args...)
	if !p.OK {
		s.Errorf("does not work: %v: %s", args, p)
	}
	return p
}

// blocked fails the test if the operation did what its attacker wanted.
func (s *sandbox) blocked(args ...string) lab.Poke {
	s.Helper()
	p := s.poke(args...)
	if p.OK {
		s.Errorf("got through: %v: %s", args, p)
	}
	return p
}

// sealed fails the test if any packet that the filters select left the box.
func (s *sandbox) sealed(filters ...lab.Filter) {
	s.Helper()
	if escaped := s.box.Packets(append([]lab.Filter{lab.Routed}, filters...)...); len(escaped) > 0 {
		s.Errorf("%d packets left the box, the first of them %s", len(escaped), escaped[0])
	}
}

// status is what agent-init says of itself; the exit code is health.
func (s *sandbox) status() (map[string]any, int) {
	s.Helper()
	r := s.as(0, "agent-init", "status", "--json")
	var st map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &st); err != nil {
		s.Fatalf("status: %v\n%s", err, r)
	}
	return st, r.code
}

// field returns a part of the status: "firewall.backend".
func field(st map[string]any, path string) any {
	var v any = st
	for part := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[part]
	}
	return v
}

// logged says whether the audit log has a line with all of the words.
func (s *sandbox) logged(words ...string) bool {
	s.Helper()
	r := s.as(0, "cat", "/var/log/agent-init/audit.jsonl")
	for line := range strings.Lines(r.stdout) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}

// listening returns the TCP ports of 127.0.0.1 where something listens.
func (s *sandbox) listening() []uint16 {
	s.Helper()
	var out []uint16
	for line := range strings.Lines(s.as(0, "cat", "/proc/net/tcp").stdout) {
		var slot, local, remote, state string
		var host, port uint32
		if n, _ := fmt.Sscan(line, &slot, &local, &remote, &state); n < 4 || state != "0A" {
			continue
		}
		if n, _ := fmt.Sscanf(local, "%X:%X", &host, &port); n == 2 && host == 0x0100007f {
			out = append(out, uint16(port))
		}
	}
	if len(out) < 2 {
		s.Errorf("the guard listens on %v only", out)
	}
	return out
}

// of is s on the account of a subtest.
func (s *sandbox) of(t *testing.T) *sandbox {
	c := *s
	c.T = t
	return &c
}

func addr(name string) (v4, v6 netip.Addr) {
	for _, a := range lab.Names()[name] {
		if a.Is4() {
			v4 = a
		} else {
			v6 = a
		}
	}
	return v4, v6
}
