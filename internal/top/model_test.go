package top

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// TestWays: each connection has its name and its way, and agent-init's own are none.
func TestWays(t *testing.T) {
	got := map[string]string{}
	for _, c := range shown(t).Connections {
		got[c.Remote.String()] = strings.TrimSpace(c.Name + " " + string(c.Way))
	}
	want := map[string]string{
		"198.51.100.1:443": "registry.npmjs.org gate", "198.51.100.2:22": "git.example.com address", "198.51.100.3:443": "mirror.example.com direct",
		"198.51.100.4:443": "api.example.com inspected", "203.0.113.9:8443": "address", "127.0.0.1:50085": "anthropic broker", "172.17.0.1:51000": "inbound",
		"198.51.100.77:443": "?",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// TestWayOfASharedAddress: a name that goes past the gate is gated where another of the address has it go there, and inside
// gVisor everything is.
func TestWayOfASharedAddress(t *testing.T) {
	f := running(t)
	f.Leases.Names[3].Addrs[0].Direct = ""
	m := NewModel()
	m.Take(f)
	ways := func() (direct, open string) {
		for _, c := range m.Show().Connections {
			switch c.Remote.String() {
			case "198.51.100.3:443":
				direct = string(c.Way)
			case "203.0.113.9:8443":
				open = string(c.Way)
			}
		}
		return direct, open
	}
	if direct, open := ways(); direct != "gate" || open != "address" {
		t.Errorf("%s, %s", direct, open)
	}
	f.State.Firewall.Reduced = "gVisor"
	m = NewModel()
	m.Take(f)
	if direct, open := ways(); direct != "gate" || open != "gate" {
		t.Errorf("reduced: %s, %s", direct, open)
	}
}

// TestANameStays: a connection keeps the name that it was opened to, when its lease has ended or another name was asked for;
// one that had none yet gets it when that is published.
func TestANameStays(t *testing.T) {
	f := running(t)
	leases := f.Leases
	f.Leases = nil
	m := NewModel()
	m.Take(f)
	name := func() string { return m.Show().Connections[0].Name + " " + string(m.Show().Connections[0].Way) }
	if name() != " ?" {
		t.Errorf("without a lease it is %q", name())
	}
	f = second(f)
	f.Leases = leases
	m.Take(f)
	if name() != "registry.npmjs.org gate" {
		t.Errorf("then %q", name())
	}
	f = second(f)
	f.Leases = &lease.Report{}
	f.Events = []audit.Event{{Kind: audit.DNS, Verdict: audit.Allow, Name: "cdn.example.com", Time: f.At}}
	m.Take(f)
	if name() != "registry.npmjs.org gate" {
		t.Errorf("when it has ended: %q", name())
	}
}

// TestRates: what went over since the last look, by the time that passed. An inode that is used again is no connection that
// went backwards.
func TestRates(t *testing.T) {
	f := running(t)
	m := NewModel()
	m.Take(f)
	f = second(second(f))
	f.Sockets.Conns[1].Sent, f.Sockets.Conns[1].Received = 0, 0
	m.Take(f)
	s := m.Show()
	if c := s.Connections[0]; c.InRate != 2_400_000 || c.OutRate != 0 || !c.Older {
		t.Errorf("%+v", c)
	}
	if c := s.Connections[1]; c.InRate != 0 || c.OutRate != 0 {
		t.Errorf("%+v", c)
	}
	f = second(f)
	f.Sockets.Conns = append(f.Sockets.Conns, tcp(99, "172.17.0.2:49999", "203.0.113.9:8443", 1000, 1000))
	m.Take(f)
	s = m.Show()
	if c := s.Connections[len(s.Connections)-1]; c.Older || !c.Since.Equal(f.At) || c.InRate != 0 {
		t.Errorf("a new one is %+v", c)
	}
}

// TestRefused: refusals are folded by what they were about, with those that have no line of their own, and with the entry that
// would allow them.
func TestRefused(t *testing.T) {
	var got []string
	s := shown(t)
	for _, n := range s.Refused {
		got = append(got, fmt.Sprintf("%s %d %s[%s]", n.Name, n.Count, n.Process, n.Line))
	}
	want := []string{"telemetry.example.net 41 claude[telemetry.example.net]", "git.example.com:8080 1 curl[git.example.com:8080]", "api.example.com:443 1 []", "1.1.1.1:443/udp 1 [1.1.1.1:443/udp]"}
	if !slices.Equal(got, want) || s.Refusals != 44 {
		t.Errorf("%d are\n%q, want\n%q", s.Refusals, got, want)
	}
	for _, n := range s.Asked {
		if n.Name == "probe.test" || n.Name == "before.test" {
			t.Errorf("the agent has asked for %s", n.Name)
		}
	}
}

// TestModelIsBounded: whatever the agent asks for, and however many connections come and go.
func TestModelIsBounded(t *testing.T) {
	m := NewModel()
	f := running(t)
	for i := range 3000 {
		f = second(f)
		f.Sockets.Conns[0].Cookie = uint64(100_000 + i)
		f.Events = []audit.Event{{Kind: audit.DNS, Verdict: audit.Deny, Name: fmt.Sprintf("n%d.test", i), Time: f.At}}
		m.Take(f)
	}
	if len(m.conns) > len(f.Sockets.Conns) || len(m.asked) > maxFolded || len(m.refused) > maxFolded || m.total != 3000 {
		t.Errorf("%d connections, %d and %d names, %d refusals", len(m.conns), len(m.asked), len(m.refused), m.total)
	}
	if last := m.Show().Refused[0].Name; last != "n2999.test" {
		t.Errorf("the last was %s", last)
	}
}

// TestNothingRuns: without a keeper there is a frame that says so, and what can be seen.
func TestNothingRuns(t *testing.T) {
	m := NewModel()
	m.Take(Facts{At: noon, Unread: "agent-init has not confined this container", Sockets: &sockowner.Table{Counted: true, Conns: []sockowner.Conn{tcp(1, "172.17.0.2:1", "192.0.2.1:443", 1, 2)}}})
	text := newScreen(80, 24).draw(t, (&View{}).Frame(m.Show(), 80, 24))
	for _, want := range []string{"not running", "NOT HEALTHY", "! agent-init has not confined", "192.0.2.1", "none was"} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q:\n%s", want, text)
		}
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1.00k", 9994: "9.99k", 9999: "10.0k", 99_949: "99.9k", 999_499: "999k", 999_500: "1.00M", 1<<64 - 1: "18.4E"} {
		if got := size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-time.Second: "0s", 59 * time.Second: "59s", 90 * time.Second: "1m", 47 * time.Hour: "47h", 100 * time.Hour: "4d"} {
		if got := brief(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	if rate(0.4) != "" || rate(700) != "700/s" {
		t.Error(rate(0.4), rate(700))
	}
}

// TestWeigh: the keeper, and of its children those that are agent-init's.
func TestWeigh(t *testing.T) {
	parts := weigh("testdata/proc", &state.State{Guard: state.Guard{UID: guardUID}, Broker: state.Broker{UID: brokerUID}})
	if fmt.Sprint(parts) != "[{keeper 0 15740928} {guard 7 9404416}]" {
		t.Errorf("they are %v", parts)
	}
}
