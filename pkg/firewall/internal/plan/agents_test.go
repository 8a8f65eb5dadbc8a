package plan

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func agentsOf(n int) Agents {
	a := Agents{Links: []uint32{3}, Onward: true}
	for i := range n {
		a.List = append(a.List, AgentAt{Link: 3, Mark: 2 * (uint32(i) + 1), UIDs: []uint32{62000 + uint32(i)}, MAC: [6]byte{2, 0, 0, 0, byte(i >> 8), byte(i)},
			Networks: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.%d.%d/32", i/250, i%250+1)), netip.MustParsePrefix(fmt.Sprintf("fd00::%x/128", i+1))}})
	}
	return a
}

func rulesOf(t *testing.T, a Agents) (n int) {
	t.Helper()
	p, err := NewAgents(a)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Chains {
		n += len(c.Rules)
	}
	return n
}

// The table of all agents has as many rules for many agents as for two.
func TestAgentsCost(t *testing.T) {
	if two, many := rulesOf(t, agentsOf(2)), rulesOf(t, agentsOf(200)); two != many {
		t.Errorf("%d rules for two agents, and %d for 200", two, many)
	}
}

func TestAgentsRefused(t *testing.T) {
	for says, change := range map[string]func(*Agents){
		"are of two agents":  func(a *Agents) { a.List[1].Networks = a.List[0].Networks },
		"10.0.0.0/24":        func(a *Agents) { a.List[1].Networks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")} },
		"mark is even":       func(a *Agents) { a.List[1].Mark = 5 },
		"have the mark":      func(a *Agents) { a.List[1].Mark = a.List[0].Mark },
		"needs an address":   func(a *Agents) { a.List[1].Networks = nil },
		"of the interfaces":  func(a *Agents) { a.List[1].Link = 4 },
		"mixes IPv4 and IPv": func(a *Agents) { a.List[1].Networks = []netip.Prefix{netip.MustParsePrefix("::ffff:0:0/90")} },
	} {
		a := agentsOf(2)
		change(&a)
		if _, err := NewAgents(a); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

// Without a mark, an agent is known and passes nothing.
func TestAgentsSealed(t *testing.T) {
	a := agentsOf(1)
	a.List[0].Mark = 0
	p, err := NewAgents(a)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Chains {
		for _, r := range c.Rules {
			if strings.HasPrefix(c.Name, "last-") && strings.Contains(r.String(), "mark") {
				t.Errorf("%s: %s", c.Name, r)
			}
		}
		if strings.HasPrefix(c.Name, "last-") && !c.Closed {
			t.Errorf("%s is open", c.Name)
		}
	}
}

// A cell judges what it has marked by its own chains, and nothing else; sealed, it has none.
func TestCell(t *testing.T) {
	c := Config{GuardUID: 62000, GuardGID: 7, AgentUID: 62002, AnyAgent: true, DNSPort4: 5353, GatePort4: 5354,
		Inside: Inside{Link: 3, Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32")}, DNS: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:5300")}, Onward: true},
		Cell:   Cell{Mark: 8}}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, ch := range p.Chains {
		if ch.Hook == "" {
			continue
		}
		if ch.Closed {
			t.Errorf("%s drops what is of others", ch.Name)
		}
		for _, r := range ch.Rules {
			if r.Verdict.Do == "accept" || r.Verdict.Do == "drop" || len(r.Matches) == 0 {
				t.Errorf("%s: %s: judges what may be of others", ch.Name, r)
			}
		}
	}
	for _, name := range []string{"own-output", "own-input", "own-forward"} {
		found := false
		for _, ch := range p.Chains {
			if ch.Name == name {
				last := ch.Rules[len(ch.Rules)-1]
				found = ch.Rules[0].Verdict.String() == "meta mark set 0x8" && last.Verdict.Do == "drop" && len(last.Matches) == 0
			}
		}
		if !found {
			t.Errorf("%s does not begin with a mark and end closed", name)
		}
	}
	sealed, err := New(Config{Sealed: true, Cell: Cell{Mark: 9}})
	if err != nil || len(sealed.Chains) != 0 {
		t.Errorf("sealed, it has chains: %v, %v", sealed, err)
	}
	c.AgentUID = c.GuardUID
	if _, err := New(c); err == nil {
		t.Error("the guard's uid is the agent's")
	}
}
