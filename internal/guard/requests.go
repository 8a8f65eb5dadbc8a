package guard

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/policy"
)

// The guard reads what the agent proposes, since it holds no privilege. The keeper gets
// it in a message of fixed size, in plain ASCII, and checks that it is.

// openRequests takes over the socket, and returns what serves it until ctx ends.
func (g *guard) openRequests(agentUID uint32) (func(context.Context) error, error) {
	l, err := wire.Inherit(fdRequests, net.FileListener)
	if err != nil {
		return nil, err
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.New("inherit the socket for requests: not a unix socket")
	}
	u.SetUnlinkOnClose(false)
	limit := &budget.Pace{Burst: wire.RequestBurst, Every: wire.RequestEvery}
	s := control.Server{
		May: func(uid uint32) bool { return uid == agentUID || uid == 0 },
		Handle: func(ctx context.Context, p control.Peer, r control.Request) control.Reply {
			return g.propose(ctx, limit, p, r)
		},
		Log: g.log,
	}
	return func(ctx context.Context) error { return s.Serve(ctx, u) }, nil
}

func (g *guard) propose(ctx context.Context, limit *budget.Pace, p control.Peer, r control.Request) control.Reply {
	if r.Verb != ask.Request {
		return ask.Refuse(fault.Privilege, "run it as root", "this socket takes requests only")
	}
	if !limit.Take(time.Now()) {
		return ask.Refuse(fault.Failure, "wait a minute, and ask for what is needed only", "too many requests")
	}
	line, err := grant.ParseLine(grant.Allow, r.Target)
	if err != nil {
		return ask.RefuseWith(err)
	}
	if len(line.Text) > wire.MaxName {
		return ask.Refuse(fault.Usage, "ask for a shorter one", "the target is longer than %d bytes", wire.MaxName)
	}
	if rule := allowedBy(g.policy.Load(), line.Text); rule != nil {
		return ask.Answer(grant.Proposed{Version: 1, Target: line.Text, Allowed: rule.Source.String()})
	}
	if rule := deniedBy(g.policy.Load(), line.Text); rule != nil {
		return ask.Refuse(fault.Usage, "ask for the rule to be taken out", "the rule %s denies it, at %s", rule, rule.Source)
	}
	for _, c := range g.policy.Load().Above(line.Text, allowlist.Files) {
		return ask.Refuse(fault.Usage, "ask for less, or ask whoever made the ceiling: docs/ceiling.md", "%s is %s", c.Text, c)
	}
	got, err := g.asks.Ask(ctx, wire.Message{Op: wire.OpRequest, Name: line.Text, Text: wire.PlainText(r.Reason), UID: p.UID, PID: uint32(p.PID)})
	switch {
	case err != nil:
		return ask.Refuse(fault.Failure, "try again", "the keeper did not answer")
	case got.Err:
		return ask.Refuse(fault.Failure, "wait until a person has looked at them", "%s", got.Text)
	}
	return ask.Answer(grant.Proposed{Version: 1, Number: uint32(got.Arg), Target: line.Text})
}

// allowedBy is the rule by which an entry about one name is allowed already.
func allowedBy(p *policy.Policy, target string) *policy.Rule {
	if strings.ContainsAny(target, ":*@/ ") {
		return nil // it may be allowed in part
	}
	if d := p.Decide(target, policy.HTTPS); d.Allowed {
		return d.Rule
	}
	return nil
}

// deniedBy is the rule by which an entry about one name is denied: what a file
// denies, a person's grant does not open, and of grants the last word counts.
func deniedBy(p *policy.Policy, target string) *policy.Rule {
	host, _, _ := strings.Cut(grant.Place(target), ":")
	if strings.ContainsAny(host, "*@/[") {
		return nil
	}
	if m := p.Lookup(host); !m.Allowed && m.Rule != nil && !strings.HasPrefix(m.Rule.Source.File, grant.Prefix) {
		return m.Rule
	}
	return nil
}
