package broker

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/broker"
)

// spend asks the keeper, who outlives this process, whether one more request fits the limits of a route. It holds so many
// tokens until it is over. Who hangs up doesn't end the question: the answer says whether they are held.
func (p *process) spend(ctx context.Context, route string, hold int64) (refused string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), spendTime)
	defer cancel()
	reply, err := p.asks.Ask(ctx, wire.Message{Op: wire.OpSpend, Name: route, Arg: uint64(max(0, hold))})
	if err != nil {
		p.released.add(route, hold, 0) // it may be held all the same
		return "", fmt.Errorf("ask for the limits: %w", err)
	}
	if reply.Err && reply.Text == "" {
		return "the limits are spent", nil
	}
	return reply.Text, nil
}

// spendTime is how long a request waits for who counts.
const spendTime = 10 * time.Second

// over tells of a request that is over: the log, and before anybody can ask again, who counts.
func (p *process) over(e broker.Event) {
	p.record(p.event(e))
	p.logins.heard(e)
	if e.Route == "" { // no route was asked
		return
	}
	m := wire.Message{Op: wire.OpSpend, Flag: wire.SpentPassed, Name: e.Route, Text: wire.PlainText(troubleOf(e))}
	if e.Refused != "" {
		m.Flag = wire.SpentRefused
	}
	in, out := p.owed.take(e.Route)
	in, out = more(in, e.TokensIn), more(out, e.TokensOut)
	m.Arg, m.Value = uint64(in), out
	ctx, cancel := context.WithTimeout(context.Background(), countTime)
	defer cancel()
	if _, err := p.asks.Ask(ctx, m); err != nil {
		p.owed.add(e.Route, in, out)
		p.log.Warn("the keeper is late to count a request", "route", e.Route, "error", err)
	}
	held, _ := p.released.take(e.Route)
	if held = more(held, e.Held); held == 0 {
		return
	}
	if _, err := p.asks.Ask(ctx, wire.Message{Op: wire.OpSpend, Flag: wire.SpentHeld, Name: e.Route, Arg: uint64(held)}); err != nil {
		p.released.add(e.Route, held, 0)
	}
}

const countTime = 2 * time.Second

// troubleOf is what was wrong with a request.
func troubleOf(e broker.Event) string {
	if e.Refused == "" && e.Status >= 400 {
		return fmt.Sprintf("the API answered %d", e.Status)
	}
	return e.Refused
}

// owed are tokens that the keeper was not told of in time. They go with the next that it is told of.
type owed struct {
	mu     sync.Mutex
	tokens map[string][2]int64 // by route
}

func (o *owed) take(route string) (in, out int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.tokens[route]
	delete(o.tokens, route)
	return t[0], t[1]
}

func (o *owed) add(route string, in, out int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tokens == nil {
		o.tokens = map[string][2]int64{}
	}
	t := o.tokens[route]
	o.tokens[route] = [2]int64{more(t[0], in), more(t[1], out)}
}

// more is a sum that no API can make less.
func more(sum, n int64) int64 {
	return sum + min(max(0, n), math.MaxInt64-sum)
}

// cutTo is what the log has of what an agent sends. The rest says nothing to a person.
func cutTo(s string, most int) string { return s[:min(len(s), most)] }

// event is a request as the log has it.
func (p *process) event(e broker.Event) audit.Event {
	out := audit.Event{
		Kind: audit.Broker, Verdict: audit.Allow, Reason: e.Refused,
		Route: e.Route, Method: cutTo(e.Method, 16), Path: cutTo(e.Path, 256), Model: cutTo(e.Model, 64),
		Status: uint16(max(0, min(e.Status, math.MaxUint16))),
		Out:    uint64(max(0, e.Sent)), In: uint64(max(0, e.Received)),
		TokensIn: uint64(max(0, e.TokensIn)), TokensOut: uint64(max(0, e.TokensOut)),
		Millis: uint64(max(0, e.Took.Milliseconds())), Key: e.Fingerprint,
	}
	if !p.blind {
		out.UID = &e.UID
	}
	if names := p.names.Load(); names != nil {
		out.Name = (*names)[e.Route]
	}
	if e.Name != "" {
		out.Name, out.Port, out.Rule = e.Name, e.Port, e.Rule
	}
	switch what, _, _ := strings.Cut(e.Refused, ":"); what {
	case "", "gone": // the client hung up
		if e.Observed != "" {
			out.Enforce, out.Reason = audit.Deny, e.Observed
		}
	case "upstream", "late", "server": // not reached, or not who it should be
		out.Verdict = audit.Fault
	default:
		out.Verdict = audit.Deny
	}
	return out
}
