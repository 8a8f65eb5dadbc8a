package broker

import (
	"context"
	"log/slog"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/broker"
	"github.com/agent-init/agent-init/pkg/route"
)

// keeper is the other end of a process's channel.
func keeper(t *testing.T, record audit.Recorder) (*process, *wire.Channel) {
	t.Helper()
	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	var conn *net.UnixConn
	if conn, err = wire.OpenPair(theirs); err != nil {
		t.Fatal(err)
	}
	p := newProcess(stage.BrokerConfig{Blind: true}, conn, record)
	p.log = slog.New(slog.DiscardHandler)
	ch := wire.Open(ours, wire.MaxSecret)
	t.Cleanup(func() { ch.Close(); p.channel.Close() })
	go p.serveChannel(t.Context())
	return p, ch
}

// TestOver: each request is recorded and counted, those that the keeper was late for with the next.
func TestOver(t *testing.T) {
	var events []audit.Event
	p, ch := keeper(t, func(e audit.Event) { events = append(events, e) })
	told := func(e broker.Event) wire.Message {
		t.Helper()
		done := make(chan struct{})
		go func() { p.over(e); close(done) }()
		m, _, err := ch.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if err := ch.Send(wire.Message{Op: m.Op, ID: m.ID}, nil); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("it waits for more than the answer")
		}
		return m
	}
	m := told(broker.Event{Route: "a", Method: "POST", Path: "/v1", Status: 200, TokensIn: 5, TokensOut: 7, Sent: 3, Received: 4, Took: 2 * time.Second})
	if m.Op != wire.OpSpend || m.Flag != wire.SpentPassed || m.Name != "a" || m.Arg != 5 || m.Value != 7 || m.Text != "" {
		t.Errorf("told %+v", m)
	}
	p.owed.add("a", 100, math.MaxInt64)
	p.owed.add("b", 1, 1)
	m = told(broker.Event{Route: "a", Status: 529, TokensIn: -3, TokensOut: 2})
	if m.Arg != 100 || m.Value != math.MaxInt64 || m.Text != "the API answered 529" {
		t.Errorf("told %+v", m)
	}
	m = told(broker.Event{Route: "a", Status: 403, Refused: "tool: web_search\x1b"})
	if m.Flag != wire.SpentRefused || m.Arg != 0 || m.Text != "tool: web_search?" {
		t.Errorf("told %+v", m)
	}
	p.over(broker.Event{Refused: "caller: a stranger", Status: 403}) // of which the keeper counts nothing
	want := []audit.Verdict{audit.Allow, audit.Allow, audit.Deny, audit.Deny}
	for i, e := range events {
		if e.Kind != audit.Broker || e.Verdict != want[i] || e.UID != nil {
			t.Errorf("event %d is %+v", i, e)
		}
	}
	if e := events[0]; e.Route != "a" || e.Out != 3 || e.In != 4 || e.TokensIn != 5 || e.TokensOut != 7 || e.Millis != 2000 || len(events) != 4 {
		t.Errorf("recorded %+v", events)
	}
	if e := p.event(broker.Event{Refused: "upstream: it refused the connection"}); e.Verdict != audit.Fault {
		t.Errorf("%+v", e)
	}
	long := strings.Repeat("x", 1000)
	if e := p.event(broker.Event{Method: long, Path: long, Model: long}); len(e.Method) != 16 || len(e.Path) != 256 || len(e.Model) != 64 {
		t.Errorf("not cut: %+v", e)
	}
}

// TestReleases: what a request has held is told of once it was counted, also if the keeper was late to hear of it.
func TestReleases(t *testing.T) {
	p, ch := keeper(t, audit.Discard)
	p.released.add("a", 11, 0)
	done := make(chan struct{})
	go func() { p.over(broker.Event{Route: "a", Status: 200, TokensIn: 5, Held: 100}); close(done) }()
	for _, want := range []wire.Message{{Flag: wire.SpentPassed, Arg: 5}, {Flag: wire.SpentHeld, Arg: 111}} {
		m, _, err := ch.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if m.Op != wire.OpSpend || m.Name != "a" || m.Flag != want.Flag || m.Arg != want.Arg {
			t.Errorf("told %+v", m)
		}
		if err := ch.Send(wire.Message{Op: m.Op, ID: m.ID}, nil); err != nil {
			t.Fatal(err)
		}
	}
	<-done
	if held, _ := p.released.take("a"); held != 0 {
		t.Errorf("%d are owed", held)
	}
}

// TestSpendOutlivesTheClient: who hangs up while the keeper is asked holds what the keeper says, and no more.
func TestSpendOutlivesTheClient(t *testing.T) {
	p, ch := keeper(t, audit.Discard)
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	go func() {
		m, _, err := ch.Receive()
		if err == nil {
			ch.Send(wire.Message{Op: m.Op, ID: m.ID, Err: m.Arg != 77, Text: ""}, nil)
		}
	}()
	if why, err := p.spend(ctx, "a", 77); why != "" || err != nil {
		t.Errorf("%q, %v", why, err)
	}
}

// TestTakeFrom: other routes are taken, and what can't be taken is said, with the former ones kept.
func TestTakeFrom(t *testing.T) {
	p, ch := keeper(t, audit.Discard)
	close(p.begun)
	a, _ := route.Builtin("anthropic")
	for what, c := range map[string]struct {
		load    stage.BrokerLoad
		refused bool
	}{
		"a route":          {stage.BrokerLoad{Routes: []route.Route{a}, Credentials: map[string][]byte{"anthropic": []byte("sk-ant-canary")}}, false},
		"no route":         {stage.BrokerLoad{}, false},
		"no credential":    {stage.BrokerLoad{Routes: []route.Route{a}}, true},
		"roots of nothing": {stage.BrokerLoad{Roots: []byte("nothing")}, true},
	} {
		f, err := c.load.File()
		if err != nil {
			t.Fatal(err)
		}
		err = ch.Send(wire.Message{Op: wire.OpCredentials, ID: 9}, f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		if m, _, err := ch.Receive(); err != nil || m.Op != wire.OpCredentials || m.ID != 9 || m.Err != c.refused {
			t.Errorf("%s: %+v, %v", what, m, err)
		}
	}
	if err := ch.Send(wire.Message{Op: wire.OpCredentials, ID: 10}, nil); err != nil {
		t.Fatal(err)
	}
	if m, _, err := ch.Receive(); err != nil || !m.Err {
		t.Errorf("without a file: %+v, %v", m, err)
	}
}
