package attack

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// waiting is a socket of the gateway's own namespace that waits for others.
type waiting struct {
	protocol string
	at       netip.AddrPort
	whose    string // of which agent's processes
}

// waitings are the sockets of the processes of all agents. Their keepers have opened them, as root.
func (s *several) waitings(names map[uint32]string) (out []waiting) {
	s.Helper()
	whose := map[string]string{} // by inode
	for _, p := range inmates(s.T, s.world.agent) {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.host))
		for _, f := range files {
			if socket, err := os.Readlink(f); err == nil && names[p.uid] != "" {
				whose[socket] = names[p.uid]
			}
		}
	}
	for protocol, state := range map[string]string{"tcp": "0A", "udp": "07"} { // TCP_LISTEN, TCP_CLOSE of include/net/tcp_states.h
		for line := range strings.Lines(s.root("cat", "/proc/net/"+protocol).Stdout) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != state || whose["socket:["+f[9]+"]"] == "" {
				continue
			}
			host, port, _ := strings.Cut(f[1], ":")
			addr, err := hex.DecodeString(host)
			must(s.T, err)
			slices.Reverse(addr) // a word, as this machine has it
			ip, _ := netip.AddrFromSlice(addr)
			n, err := strconv.ParseUint(port, 16, 16)
			must(s.T, err)
			out = append(out, waiting{protocol, netip.AddrPortFrom(ip, uint16(n)), whose["socket:["+f[9]+"]"]})
		}
	}
	return out
}

// stayHome: who has taken over a process of one agent's reaches what answers for that agent, and nothing that answers for
// the other, which would take it for one of its own.
func (s *several) stayHome(names map[uint32]string) {
	s.Helper()
	all := s.waitings(names)
	mine, others := 0, 0
	for _, p := range inmates(s.T, s.world.agent) {
		whose := names[p.uid]
		if whose == "" {
			continue
		}
		for _, l := range all {
			args := []string{"poke", "tcp", "-timeout", "1s", l.at.String()}
			if l.protocol == "udp" {
				args = []string{"poke", "dns", "-timeout", "1s", l.at.String(), map[string]string{"alpha": "ok.test", "beta": "ok2.test"}[l.whose], "A"}
			}
			r := s.box.Exec(lab.Cmd{UID: p.uid, GID: p.gid, Args: args})
			got, err := lab.ParsePoke(r.Stdout)
			must(s.T, err)
			own, reached := l.whose == whose, got.OK || got.Errno == "ECONNRESET" // by the name gate, which nobody has led there
			switch {
			case own && strings.HasSuffix(p.args, " guard"):
				if mine++; !reached {
					s.Errorf("a guard does not reach its own %s %v: %s", l.protocol, l.at, got)
				}
			case !own:
				if others++; reached {
					s.Errorf("%s, of %s, reaches %s %v of the other's: %s", p.args, whose, l.protocol, l.at, got)
				}
			}
		}
	}
	if mine < 6 || others < 12 {
		s.Errorf("%d of their own and %d of the other's were tried: %v", mine, others, all)
	}
}

// owners says whose a process is, by the directory of the agent that its keeper has.
func (s *several) owners(t *testing.T) map[uint32]string {
	t.Helper()
	st, _ := s.status()
	out := map[uint32]string{}
	for _, a := range st["agents"].([]any) {
		a := a.(map[string]any)
		r := s.root("sh", "-c", fmt.Sprintf("for p in /proc/[0-9]*; do grep -qs '^PPid:.%v$' $p/status && awk '/^Uid:/ {print $2}' $p/status; done", a["keeper"]))
		for _, f := range strings.Fields(r.Stdout) {
			if uid, err := strconv.ParseUint(f, 10, 32); err == nil && uid != 0 {
				out[uint32(uid)] = a["name"].(string)
			}
		}
	}
	return out
}

// TestLabGatewayAgentsLeft: what a process of an agent's keeper has left behind ends with that, before anybody else has its
// uid.
func TestLabGatewayAgentsLeft(t *testing.T) {
	s := keepsSeveral(t, listOf(lineOf("alpha", 2), lineOf("beta", 3)), "45.30.9.9:8443\n", "45.30.9.9:8444\n")
	left := func(name string) *lab.Process {
		t.Helper()
		for uid, whose := range s.owners(t) {
			if whose == name {
				p := s.box.ExecStart(lab.Cmd{UID: uid, Args: []string{"sleep", "600"}})
				runs := func() bool {
					return slices.ContainsFunc(inmates(t, s.world.agent), func(i inmate) bool { return i.uid == uid && i.args == "sleep 600" })
				}
				if !eventually(lab.Patience, runs) {
					t.Fatalf("it does not run: %s%s", p.Stdout(), p.Stderr())
				}
				return p
			}
		}
		t.Fatalf("%s has no process", name)
		return nil
	}
	gone := func(what string, p *lab.Process) {
		t.Helper()
		select {
		case <-p.Done():
		case <-time.After(lab.Patience):
			t.Errorf("%s: what it has left lives on", what)
		}
	}
	mine := left("alpha")
	st, _ := s.status()
	for _, a := range st["agents"].([]any) {
		if a := a.(map[string]any); a["name"] == "alpha" {
			if r := s.root("kill", "-KILL", fmt.Sprint(a["keeper"])); r.Code != 0 {
				t.Fatal(r)
			}
		}
	}
	gone("a keeper that was killed", mine)
	if !eventually(lab.Patience, func() bool { _, code := s.status(); return code == 0 }) {
		t.Fatal("alpha is not kept again")
	}
	s.works("tcp", "45.30.9.9:8443")
	theirs := left("beta")
	must(t, s.box.WriteFile(agentsFile, []byte(listOf(lineOf("alpha", 2))), 0o644))
	s.did("reload")
	gone("an agent that was taken out", theirs)
}
