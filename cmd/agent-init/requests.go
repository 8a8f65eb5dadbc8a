package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/policy"
)

// The guard reads what the agent proposes, since it holds no privilege; the
// keeper gets it in a message of fixed size, canonical and in plain ASCII, and
// checks that it is.

// How often the agent may propose something.
const (
	requestBurst = 5
	requestEvery = 10 * time.Second
)

// openRequests takes over the socket, and returns what serves it until ctx ends.
func (g *guard) openRequests(agentUID uint32) (func(context.Context) error, error) {
	l, err := wire.Inherit(stage.FDRequests, net.FileListener)
	if err != nil {
		return nil, err
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.New("inherit the socket for requests: not a unix socket")
	}
	u.SetUnlinkOnClose(false)
	limit := &wire.Pace{Burst: requestBurst, Every: requestEvery}
	s := control.Server{
		May: func(uid uint32) bool { return uid == agentUID || uid == 0 },
		Handle: func(ctx context.Context, p control.Peer, r control.Request) control.Reply {
			return g.propose(ctx, limit, p, r)
		},
		Log: g.log, Peers: 4,
	}
	return func(ctx context.Context) error { return s.Serve(ctx, u) }, nil
}

// proposed answers a request.
type proposed struct {
	Version int    `json:"version"`
	Number  uint32 `json:"number,omitempty"` // 0: there is no need for one
	Target  string `json:"target"`
	Allowed string `json:"allowed,omitempty"` // the rule that allows it already
}

// propose hands a well-formed proposal to the keeper.
func (g *guard) propose(ctx context.Context, limit *wire.Pace, p control.Peer, r control.Request) control.Reply {
	if r.Verb != state.VerbRequest {
		return refusal(fault.Privilege, "a person does this as root", "only request is served here")
	}
	if !limit.Take(time.Now()) {
		return refusal(fault.Failure, "wait a minute, and ask for what is needed only", "too many requests")
	}
	line, reply := grantLine(grant.Allow, r.Target)
	if !reply.OK {
		return reply
	}
	if len(line.Text) > wire.MaxName {
		return refusal(fault.Usage, "ask for a shorter one", "the target is longer than %d bytes", wire.MaxName)
	}
	if rule := allowedBy(g.policy.Load(), line.Text); rule != nil {
		return answer(proposed{Version: 1, Target: line.Text, Allowed: rule.Source.String()})
	}
	if rule := deniedBy(g.policy.Load(), line.Text); rule != nil {
		return refusal(fault.Usage, "ask for the rule to be taken out", "%s denies it, at %s, and no grant opens that", rule, rule.Source)
	}
	got, err := g.ask(ctx, wire.Message{Op: wire.OpRequest, Name: line.Text, Text: plainText(r.Reason), UID: p.UID, PID: int32(p.PID)})
	switch {
	case err != nil:
		return refusal(fault.Failure, "try again", "the keeper did not answer")
	case got.Err:
		return refusal(fault.Failure, "wait until a person has looked at them", "%s", got.Text)
	}
	return answer(proposed{Version: 1, Number: got.Number, Target: line.Text})
}

// allowedBy is the rule by which an entry about one name is allowed already.
func allowedBy(p *policy.Policy, target string) *policy.Rule {
	if strings.ContainsAny(target, ":*@/ ") {
		return nil // it may be allowed in part
	}
	if d := p.Decide(target, https); d.Allowed {
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

// plainText is s as ASCII, in single blanks: what the agent says is shown to a
// person, and a run of blanks could make a row of its own on the screen.
func plainText(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return strings.TrimSpace(s[:min(len(s), wire.MaxText)])
}

// checkRequest says what is wrong with a request that the guard, which may have
// been taken over, has sent.
func checkRequest(m wire.Message) error {
	// In single blanks: a run of them could make a row of its own on a screen.
	if m.Name == "" || strings.Trim(m.Name, "abcdefghijklmnopqrstuvwxyz0123456789.*-_:[]/@ ") != "" || strings.Join(strings.Fields(m.Name), " ") != m.Name {
		return errors.New("not the target of a request")
	}
	if plainText(m.Text) != m.Text {
		return errors.New("not the reason of a request")
	}
	return nil
}

// requested books a proposal of the guard's, and answers it.
func (k *keeper) requested(m wire.Message) wire.Message {
	reply := wire.Message{Op: wire.OpRequest, ID: m.ID}
	var err error
	if reply.Number, err = k.addRequest(m); err != nil {
		reply.Err, reply.Text = true, plainText(err.Error())
	}
	return reply
}

// addRequest books what the agent proposes. It opens nothing.
func (k *keeper) addRequest(m wire.Message) (uint32, error) {
	if err := checkRequest(m); err != nil {
		return 0, err
	}
	if !k.budgets.requests.Take(time.Now()) {
		return 0, errors.New("too many requests: wait a moment")
	}
	k.reloading.Lock()
	defer k.reloading.Unlock()
	k.mu.Lock()
	g, isNew, err := k.grants.Request(grant.Asker{Target: m.Name, Reason: m.Text, UID: m.UID, PID: int(m.PID)}, time.Now())
	k.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if isNew {
		k.log.Warn("the agent asks for a grant", "target", g.Target, "number", g.Number)
		k.record(g.Event(audit.Info, "requested by the agent", &control.Peer{UID: m.UID, PID: int(m.PID)}))
	}
	k.publishGrants()
	k.publish()
	return g.Number, nil
}
