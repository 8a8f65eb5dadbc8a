package top

import (
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// crowded is a container with so many connections through the gate, three sockets each, of which this model meets all.
func crowded(t testing.TB, n int) Facts {
	f := running(t)
	f.Sockets.Conns, f.Holders = nil, map[uint32]sockowner.Process{}
	for i := range n {
		at := uint32(3*i + 1)
		local := netip.AddrPortFrom(addr("172.17.0.2"), uint16(10_000+i)).String()
		f.Sockets.Conns = append(f.Sockets.Conns, tcp(at, local, "198.51.100.1:443", 1, 1), guards(at+1, "127.0.0.1:37947", local), guards(at+2, local, "198.51.100.1:443"))
		f.Holders[at] = sockowner.Process{PID: 100 + i%50, Name: "node"}
	}
	return f
}

// flood is what the log has of 200 refusals.
func flood(at time.Time, round int) (events []audit.Event) {
	for i := range 200 {
		events = append(events, audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: fmt.Sprintf("n%d-%d.evil.test", round, i), Time: at, Comm: "node", PID: 100})
	}
	return events
}

// TestBudget: a second at 5,000 connections and 200 refusals takes a twentieth of a processor at most. What reading
// them takes is not in it.
func TestBudget(t *testing.T) {
	best := time.Hour // others are at work on this machine as well
	f := crowded(t, 5000)
	m, v := NewModel(), &View{}
	p := painter{out: io.Discard}
	for round := range 8 {
		f = second(f)
		f.Events = flood(f.At, round)
		before := spent()
		m.Take(f)
		frame := v.Frame(m.Show(), 200, 60)
		if err := p.paint(frame); err != nil {
			t.Fatal(err)
		}
		best = min(best, spent()-before)
	}
	t.Logf("a second takes %v", best)
	if best > slower*50*time.Millisecond {
		t.Errorf("a second takes %v", best)
	}
}

// TestPause: looking has a twenty-fifth of a processor at most, whatever it takes.
func TestPause(t *testing.T) {
	for cost, want := range map[time.Duration]time.Duration{0: time.Second, 40 * time.Millisecond: time.Second, 100 * time.Millisecond: 2500 * time.Millisecond, -time.Second: time.Second, time.Hour: longest} {
		if got := pause(time.Second, cost); got != want {
			t.Errorf("after %v it pauses for %v, want %v", cost, got, want)
		}
	}
}
