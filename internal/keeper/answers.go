package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/selftest"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// answering serves what a child of ours asks. It may be somebody else's by now: it can't have more answers under way
// than are counted here, and a message that it would not send ends it.
type answering struct {
	who      string
	patience time.Duration // with one that does not read its answers
	log      *slog.Logger

	answers map[wire.Op]func(m, reply wire.Message) wire.Message
	last    func(*os.File) error       // does what wire.OpLast asks; nil: nobody may
	takes   func(m wire.Message) error // what else it may say; an error ends it
}

// serve answers until the channel closes, and says why the child is to end.
func (a answering) serve(ch *wire.Channel) error {
	places := make(chan struct{}, wire.AsksAtOnce)
	for {
		m, file, err := ch.Receive()
		answer := a.answers[m.Op]
		if a.last != nil && m.Op == wire.OpLast && err == nil {
			answer = last(a.last(file))
		}
		if file != nil {
			file.Close()
		}
		switch {
		case errors.Is(err, wire.ErrMalformed):
			return fmt.Errorf("%s sent a malformed message", a.who)
		case err != nil:
			return fmt.Errorf("%s closed its channel: %w", a.who, err)
		}
		if answer == nil {
			if err := a.takes(m); err != nil {
				return err
			}
			continue
		}
		select {
		case places <- struct{}{}:
		case <-time.After(a.patience):
			return fmt.Errorf("%s asks without reading the answers", a.who)
		}
		go func() {
			defer func() { <-places }()
			if err := ch.Deliver(answer(m, wire.Message{Op: m.Op, ID: m.ID})); err != nil {
				a.log.Debug("answering", "who", a.who, "error", err)
			}
		}()
	}
}

// last answers wire.OpLast.
func last(err error) func(m, reply wire.Message) wire.Message {
	return func(_, reply wire.Message) wire.Message {
		reply.Err = err != nil
		return reply
	}
}

// serve answers the guard.
func (g *guardKeeper) serve(ctx context.Context, ch *wire.Channel) error {
	slots := make(chan struct{}, 64) // leases at once
	a := answering{who: "the guard", patience: guardPatience, log: g.log}
	a.answers = map[wire.Op]func(m, reply wire.Message) wire.Message{
		wire.OpRequest: g.requested, wire.OpOwner: g.finding.owner, wire.OpName: g.leases.mayAsk,
		wire.OpLeasedTo: g.leases.leasedTo, wire.OpDirect: g.leases.direct,
		// Leases may wait for a change of the policy. What the guard sends
		// besides must be read meanwhile: it is what shows that it lives.
		wire.OpLease: func(m, reply wire.Message) wire.Message {
			slots <- struct{}{}
			defer func() { <-slots }()
			return g.leases.lease(ctx, m, reply)
		},
	}
	a.takes = func(m wire.Message) error { return g.takes(ch, m) }
	return a.serve(ch)
}

func (g *guardKeeper) takes(ch *wire.Channel, m wire.Message) error {
	switch m.Op {
	case wire.OpReady:
		g.serving(ch)
	case wire.OpPong:
		var was, is state.DNS
		g.update(func(s *state.State) {
			was = s.DNS
			s.Guard.Seen, s.Guard.Stats = time.Now(), m.Stats
			s.DNS.Hear(m)
			is = s.DNS
		})
		if was.Silent.IsZero() != is.Silent.IsZero() { // who asks for the status is told at once
			g.publish()
		}
	case wire.OpPolicy, wire.OpProbing:
		if m.Op == wire.OpPolicy && m.Err {
			return errors.New("the guard could not take the new policy")
		}
		g.answered(m)
	case wire.OpResolve:
		g.answered(m)
	default:
		return errors.New("the guard sent an unknown request")
	}
	return nil
}

func (g *guardKeeper) requested(m, reply wire.Message) wire.Message {
	err, pace := wire.CheckRequest(m), &g.leases.requests
	if m.Flag == wire.ForHeld {
		if pace = &g.leases.held; g.book.policy().Settings.Approvals.Hold == 0 {
			err = errors.New("no question is held")
		}
	}
	if err == nil && !pace.Take(time.Now()) {
		err = errors.New("too many requests: wait a moment")
	}
	if err == nil {
		reply.Arg, err = g.book.request(m)
	}
	if err != nil {
		reply.Err, reply.Text = true, wire.PlainText(err.Error())
	}
	return reply
}

func (g *guardKeeper) serving(ch *wire.Channel) {
	present := g.book.now().bundle
	g.begun(ch)
	g.mu.Lock()
	outdated, ahead := g.given != present, g.ahead
	g.mu.Unlock()
	g.tellAhead(ch, ahead)
	if outdated { // the policy changed while the guard was on its way
		g.push()
	}
	g.serves()
}

// finding is who looks for processes of the agent's, for the log.
type finding struct {
	scanner *sockowner.Scanner // nil: processes can't be looked at
	scans   budget.Pace
	looking sync.Mutex    // one looks, and the next ones know what that took
	spent   budget.Bucket // seconds of a processor
}

// What looking for processes may take of a processor, however many there are, and at once.
const (
	lookingShare = 0.01
	lookingBurst = 0.01 // seconds: a look among hundreds can take more, and then there is none for a while
)

// open gets what finding takes, and returns where the guard looks sockets up. It is not
// worth a start that fails: the log says less then.
func (f *finding) open(a *agent) (diag *os.File, err error) {
	if a.reduced { // the kernel can't look sockets up, and the guard does not ask
		return os.Open(os.DevNull)
	}
	f.scans = budget.Pace{Burst: 200, Every: 10 * time.Millisecond} // twice what a guard of ours asks
	if f.scanner, err = sockowner.NewScanner(a.identity.UID, a.identity.GID); err != nil {
		a.log.Warn("the log will not name processes", "error", err)
	}
	if diag, err = sockowner.Open(); err == nil {
		return diag, nil
	}
	a.log.Warn("the log will not name processes", "error", err)
	return os.Open(os.DevNull) // which answers nothing
}

func (f *finding) owner(m, reply wire.Message) wire.Message {
	reply.Err = true
	if f.scanner == nil || !f.scans.Take(time.Now()) {
		return reply
	}
	f.looking.Lock()
	defer f.looking.Unlock()
	if !f.spent.Left(time.Now(), lookingShare, lookingBurst) {
		return reply
	}
	p, ok, took := f.scanner.Holder(uint32(m.Arg))
	f.spent.Owe(took.Seconds())
	if ok {
		reply.PID, reply.Text, reply.Err = uint32(p.PID), p.Name, false
	}
	return reply
}

// overheard keeps what the guard had to say about the connections that a self-test
// must be able to make: the probe sees only that they end.
type overheard struct {
	mu      sync.Mutex
	reasons map[string]string // by name; as many as the plan has
}

// about begins to listen for what plan tries to reach.
func (o *overheard) about(plan selftest.Plan) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reasons = map[string]string{}
	for _, list := range [][]selftest.Target{plan.Required, plan.Reach} {
		for _, t := range list {
			o.reasons[t.Name] = ""
		}
	}
}

// hear takes in an event of the guard's. A connection that carried nothing back has failed, whoever's fault that was.
func (o *overheard) hear(e audit.Event) {
	if e.Asker != audit.BySelfTest || e.Kind != audit.Connect && e.Kind != audit.HTTP || e.Verdict == audit.Allow && e.In > 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.reasons[e.Name]; ok {
		o.reasons[e.Name] = e.Reason
	}
}

// explain says in the checks that failed what the guard knows of them.
func (o *overheard) explain(r selftest.Report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range r.Checks {
		c := &r.Checks[i]
		host, _, err := net.SplitHostPort(c.Target)
		if err == nil && !c.OK && c.Want == selftest.Reachable && o.reasons[host] != "" {
			c.Detail += "; the name gate says: " + text.Clean(o.reasons[host])
		}
	}
}
