package resolver

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// holding is a rig that serves over UDP, and whoever is asked whether a question waits.
type holding struct {
	*rig
	addr  string
	mu    sync.Mutex
	names []string
	over  map[string]chan struct{} // the names that wait
}

func newHolding(t *testing.T) *holding {
	t.Helper()
	h := &holding{over: map[string]chan struct{}{}}
	h.rig = newRigWith(t, func(c *Config) {
		c.Hold = func(name string, _ func() *audit.Process) <-chan struct{} {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.names = append(h.names, name)
			return h.over[name]
		}
		c.Aside = func(name string) bool { return name == "probe.test" }
	}, policyOf(t, "", "192.0.2.7 host.test\n", "ok.test", "*.wild.test", "!denied.test"))
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr = pc.LocalAddr().String()
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(t.Context(), []net.PacketConn{pc}, nil) }()
	t.Cleanup(func() { // the context has ended: what waits holds up nothing
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("a question that waits keeps the server from ending")
		}
	})
	return h
}

// question asks over UDP, and returns where the answer comes.
func (h *holding) question(name string, qtype uint16) <-chan *dns.Msg {
	out := make(chan *dns.Msg, 1)
	go func() {
		m, _, err := (&dns.Client{Timeout: time.Minute}).Exchange(asks(name, qtype), h.addr)
		if err != nil {
			h.t.Error(err)
		}
		out <- m
	}()
	return out
}

// holds has the questions for a name wait until over is closed.
func (h *holding) holds(name string) (over chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	over = make(chan struct{})
	h.over[name] = over
	return over
}

func (h *holding) held() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.names)
}

// TestHold: a question for a name that nobody has thought of waits, while others are answered, and is answered by the
// policy as it is when that is over.
func TestHold(t *testing.T) {
	h := newHolding(t)
	h.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	h.up.set(t, "new.test.", "A", "new.test. 60 A 192.0.2.2")
	h.up.set(t, "new.test.", "AAAA", "new.test. 60 AAAA 2001:db8::2")
	overNew, overEvil := h.holds("new.test"), h.holds("evil.test")
	first, second, evil := h.question("new.test.", dns.TypeA), h.question("new.test.", dns.TypeAAAA), h.question("evil.test.", dns.TypeA)
	for deadline := time.Now().Add(time.Minute); len(h.held()) < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("held: %q", h.held())
		}
	}
	if m := <-h.question("ok.test.", dns.TypeA); len(m.Answer) != 1 {
		t.Errorf("another question: %v", m)
	}
	if len(h.up.asked()) != 1 || len(first)+len(second)+len(evil) > 0 {
		t.Errorf("asked for %q before anybody has decided", h.up.asked())
	}
	h.policy.Store(policyOf(t, "", "", "ok.test", "new.test"))
	close(overNew)
	if a, aaaa := <-first, <-second; !slices.Equal(addresses(a), []string{"192.0.2.2"}) || !slices.Equal(addresses(aaaa), []string{"2001:db8::2"}) {
		t.Errorf("allowed: %v, %v", a, aaaa)
	}
	close(overEvil)
	if m := <-evil; m.Rcode != dns.RcodeNameError {
		t.Errorf("not allowed: %v", m)
	}
	if denied := h.recorded(audit.Deny); len(denied) != 1 || denied[0].Name != "evil.test" {
		t.Errorf("recorded %+v", denied)
	}
}

// TestHoldEnds: a question that waits for ever holds up no end of the server.
func TestHoldEnds(t *testing.T) {
	h := newHolding(t)
	h.holds("left.test")
	c, err := net.Dial("udp", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pkt, err := asks("left.test.", dns.TypeA).Pack()
	if err == nil {
		_, err = c.Write(pkt)
	}
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); len(h.held()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is not held")
		}
	}
}

// TestHoldsFew: what would be answered or refused whatever a person says is never held.
func TestHoldsFew(t *testing.T) {
	h := newHolding(t)
	for _, q := range []struct {
		name  string
		qtype uint16
		held  bool
	}{
		{"a.test.", dns.TypeA, true}, {"b.test.", dns.TypeAAAA, true}, {"c.test.", dns.TypeHTTPS, true},
		{"d.test.", dns.TypeTXT, false}, {"ok.test.", dns.TypeA, false}, {"x.wild.test.", dns.TypeA, false}, {"denied.test.", dns.TypeA, false},
		{"host.test.", dns.TypeA, false}, {"localhost.", dns.TypeA, false}, {"a.localhost.", dns.TypeA, false}, {"probe.test.", dns.TypeA, false},
		{"e.test.corp.test.", dns.TypeA, false}, {"e.svc.cluster.local.", dns.TypeA, false}, {policy.Canary + ".", dns.TypeA, false},
		{"1.2.0.192.in-addr.arpa.", dns.TypeA, false}, {"a b.test.", dns.TypeA, false},
	} {
		before := len(h.held())
		<-h.question(q.name, q.qtype)
		if got := len(h.held()) > before; got != q.held {
			t.Errorf("%s %s: held %t", q.name, dns.Type(q.qtype), got)
		}
	}
	before := len(h.held())
	h.ask("tcp.test.", dns.TypeA) // as over TCP
	if len(h.held()) > before {
		t.Error("a question over TCP is held")
	}
}
