package top

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/session/terminal"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

const agentUID, guardUID, brokerUID = 1000, 64901, 64902

// listed is a policy of these lines.
func listed(t testing.TB, lines string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "allowlist.txt", Data: []byte(lines)}}}, allowlist.Files)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func addr(s string) netip.Addr         { return netip.MustParseAddr(s) }
func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// running is a container at work, at noon: one connection of each way, refusals, a request.
func running(t testing.TB) Facts {
	t.Helper()
	s := &state.State{Phase: state.PhaseReady, Mode: "run", Keeper: state.Self(), Started: noon.Add(-time.Hour), Published: noon}
	s.Agent.UID, s.Guard.UID, s.Guard.OK, s.Broker.UID, s.Broker.OK, s.Broker.Port = agentUID, guardUID, true, brokerUID, true, 50085
	s.Broker.Routes = []state.Route{{Name: "anthropic", Present: true, Requests: 42, Refusals: 1}}
	s.Guard.Stats.Queries, s.Guard.Stats.Denied = 310, 44
	s.Guard.Stats.Relays, s.Guard.Stats.Refused = 3, 7
	s.Leases.Names, s.Leases.Elements, s.Grants.Allowed, s.Grants.Requests = 4, 9, 1, 1
	s.Session.Name, s.Session.OK, s.Session.Windows, s.Session.Attached = "main", true, 2, 1
	name := func(n, a, on, direct string, ends time.Duration) lease.Name {
		return lease.Name{Name: n, Addrs: []lease.Address{{Addr: addr(a), On: on, Direct: direct, Expires: noon.Add(ends)}}}
	}
	f := Facts{At: noon, State: s, Operator: true,
		Policy: listed(t, "registry.npmjs.org\ncdn.example.com\ngit.example.com:22\nmirror.example.com direct\napi.example.com GET /v1/**\n203.0.113.9:8443\n"),
		Leases: &lease.Report{Names: []lease.Name{
			name("registry.npmjs.org", "198.51.100.1", "443/tcp 80/tcp", "", 2*time.Minute), name("cdn.example.com", "198.51.100.1", "443/tcp 80/tcp", "", 5*time.Second),
			name("git.example.com", "198.51.100.2", "22/tcp", "", 90*time.Second), name("mirror.example.com", "198.51.100.3", "443/tcp", "443/tcp", time.Hour),
			name("api.example.com", "198.51.100.4", "443/tcp", "", 3*time.Minute)}},
		Grants: []grant.Grant{
			{Number: 3, Kind: grant.Request, Target: "proxy.golang.org", Reason: "to fetch the linter", Asked: 2, Made: noon.Add(-3 * time.Minute)},
			{Number: 2, Kind: grant.Allow, Target: "cdn.example.com", Made: noon},
			{Number: 1, Kind: grant.Request, Target: "old.test", Outcome: "denied"}},
		Parts: []Part{{"keeper", 1, 15_400_000}, {"guard", 7, 22_900_000}, {"broker", 9, 31_000_000}, {"sessions", 12, 9_100_000}},
		Sockets: &sockowner.Table{Counted: true, Listening: map[netip.AddrPort]uint32{addrPort("0.0.0.0:3000"): agentUID, addrPort("127.0.0.1:50085"): 0},
			Conns: []sockowner.Conn{
				tcp(1, "172.17.0.2:40001", "198.51.100.1:443", 12_000, 48_100_000), tcp(2, "172.17.0.2:40002", "198.51.100.2:22", 4_200, 9_000),
				tcp(3, "172.17.0.2:40003", "198.51.100.3:443", 900, 1_500), tcp(4, "172.17.0.2:40004", "198.51.100.4:443", 22_000, 310_000),
				tcp(5, "172.17.0.2:40005", "203.0.113.9:8443", 31, 31), tcp(6, "127.0.0.1:40006", "127.0.0.1:50085", 18_000, 220_000),
				tcp(7, "172.17.0.2:3000", "172.17.0.1:51000", 512, 128), tcp(8, "127.0.0.1:40008", "127.0.0.1:3000", 1, 1),
				tcp(9, "172.17.0.2:40009", "198.51.100.77:443", 7, 7)}},
		Holders: map[uint32]sockowner.Process{1: {PID: 120, Name: "node"}, 2: {PID: 133, Name: "ssh"}, 4: {PID: 120, Name: "node"}, 6: {PID: 88, Name: "claude"}, 7: {PID: 141, Name: "vite"}},
	}
	f.Sockets.Conns = append(f.Sockets.Conns, guards(10, "127.0.0.1:37947", "172.17.0.2:40001"), guards(11, "172.17.0.2:41001", "198.51.100.1:443"))
	f.Events = []audit.Event{
		{Kind: audit.DNS, Verdict: audit.Allow, Name: "cdn.example.com", Time: noon.Add(-2 * time.Minute), Comm: "node", PID: 120},
		{Kind: audit.DNS, Verdict: audit.Allow, Name: "registry.npmjs.org", Time: noon.Add(-time.Minute), Comm: "node", PID: 120},
		{Kind: audit.DNS, Verdict: audit.Deny, Name: "telemetry.example.net", Time: noon.Add(-5 * time.Second), Comm: "claude", PID: 88, Reason: "not in the allowlist", Suppressed: 40},
		{Kind: audit.Drop, Verdict: audit.Deny, IP: "1.1.1.1", Port: 443, Proto: "udp", Time: noon.Add(-20 * time.Minute), Reason: "not in the allowlist"},
		{Kind: audit.Drop, Verdict: audit.Deny, IP: "198.51.100.2", Port: 8080, Proto: "tcp", Time: noon.Add(-time.Minute), Comm: "curl", PID: 150},
		{Kind: audit.HTTP, Verdict: audit.Deny, Name: "api.example.com", Port: 443, Time: noon.Add(-2 * time.Minute), Reason: "no entry allows such a request"},
		{Kind: audit.DNS, Verdict: audit.Deny, Name: "probe.test", Time: noon, Asker: audit.BySelfTest},
		{Kind: audit.DNS, Verdict: audit.Deny, Name: "before.test", Time: noon.Add(-2 * time.Hour)},
	}
	return f
}

func tcp(inode uint32, local, remote string, sent, received uint64) sockowner.Conn {
	return sockowner.Conn{Socket: sockowner.Socket{Inode: inode, UID: agentUID}, Cookie: uint64(inode) + 1000, Proto: unix.IPPROTO_TCP,
		Local: addrPort(local), Remote: addrPort(remote), Sent: sent, Received: received}
}

func guards(inode uint32, local, remote string) sockowner.Conn {
	c := tcp(inode, local, remote, 5, 5)
	c.UID = guardUID
	return c
}

// second is one second later: some bytes have gone over.
func second(f Facts) Facts {
	f.At, f.Events = f.At.Add(time.Second), nil
	table := *f.Sockets
	table.Conns = append([]sockowner.Conn{}, table.Conns...)
	table.Conns[0].Received += 2_400_000
	table.Conns[5].Sent += 700
	f.Sockets = &table
	return f
}

// shown is what there is to be seen after two looks.
func shown(t testing.TB) Shown {
	m := NewModel()
	f := running(t)
	m.Take(f)
	m.Take(second(f))
	return m.Show()
}

// screen is what a terminal shows of frames: all that reaches it goes through the painter, and through what our own sessions
// make of bytes.
type screen struct {
	*terminal.Terminal
	painter
	sent strings.Builder
}

func newScreen(cols, rows int) *screen {
	s := &screen{Terminal: terminal.New(terminal.Options{Cols: cols, Rows: rows, Scrollback: -1})}
	s.painter = painter{out: writes(func(b []byte) {
		s.sent.Write(b)
		s.Terminal.Write(b)
	})}
	return s
}

type writes func([]byte)

func (w writes) Write(b []byte) (int, error) { w(b); return len(b), nil }

func (s *screen) draw(t testing.TB, frame []line) string {
	t.Helper()
	if err := s.paint(frame); err != nil {
		t.Fatal(err)
	}
	return s.text()
}

func (s *screen) text() string {
	var b strings.Builder
	for _, l := range s.Text() {
		fmt.Fprintln(&b, strings.TrimRight(l, " "))
	}
	return b.String()
}
