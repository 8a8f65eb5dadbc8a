package keeper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/policy"
)

// inForce is a policy with the grants that are a part of it. It never changes: another takes its place.
type inForce struct {
	bundle *policy.Bundle // files and grants
	policy *policy.Policy // of the bundle
	grants grant.Book
}

// book owns what is in force, and what is to be.
type book struct {
	present atomic.Pointer[inForce]

	*base
	servers     *servers
	judge       func(*policy.Policy) error
	credentials *credentials // of the broker's routes
	notifier    notifier

	changing  sync.Mutex // one change at a time; what follows is its own
	watched   watched
	files     *policy.Bundle // without grants
	begun     string         // the phase that the start begins in
	unsealed  atomic.Bool    // what was to be sealed is not: tried again
	owedCuts  []audit.Event  // what is to be said when they are in force, see owe
	unadopted atomic.Bool    // files were read that could not be brought into force: tried again
}

func (b *book) now() *inForce          { return b.present.Load() }
func (b *book) policy() *policy.Policy { return b.now().policy }

// over puts grants on top of files, which are those in force or come after them.
func (b *book) over(files *policy.Bundle, grants grant.Book) (*inForce, error) {
	all := grants.Over(files)
	p, err := b.policy().Next(all, allowlist.Files)
	if err != nil {
		return nil, fault.New(fault.Policy, "end the grant that is named (agent-init grants --end NUMBER), or take back what was changed",
			"grants and policy don't go together\n%w", err)
	}
	return &inForce{all, p, grants}, nil
}

// read reads what is to be in force. With an error, the bundle has the ceiling, if that is right, and perhaps no more.
func (b *book) read() (*policy.Bundle, *policy.Policy, error) {
	b.watched.loaded = b.filesState() // before: a change meanwhile is noticed
	files, err := b.readFiles()
	if err != nil {
		return files, nil, container.ReadFault(err)
	}
	if err := b.notOlder(files); err != nil {
		return nil, nil, err
	}
	p, routesWrong, err := b.parse(files)
	if err == nil {
		err = p.CheckPhases(files, allowlist.Files)
	}
	if _, is := errors.AsType[*policy.CeilingError](err); is {
		return nil, nil, container.ReadFault(err)
	}
	if err != nil {
		remedy := "see agent-init check, and correct the entries"
		if routesWrong {
			remedy = b.credentials.remedy()
		}
		return files, nil, fault.New(fault.Policy, remedy, "the policy has errors\n%w", err)
	}
	if err := b.permitted(p.Ceiling()); err != nil {
		return files, p, err
	}
	if err := b.credentials.ofProxy(p); err != nil {
		return files, p, err
	}
	return files, p, b.judge(p)
}

func (b *base) recordPolicy(p *policy.Policy, signed policy.Signed, what string) {
	b.recordCuts(p, signed)
	c := p.Counts()
	b.record(audit.Event{Kind: audit.Policy, Verdict: audit.Info, Reason: fmt.Sprintf("%s: %s", what, state.SizeOf(c))})
	b.update(func(s *state.State) {
		s.Policy.Counts, s.Policy.Attempts, s.Policy.Loaded, s.Policy.Fault = c, s.Policy.Attempts+1, time.Now(), ""
		if s.Policy.UpstreamProxy = ""; p.Settings.UpstreamProxy.Host != "" {
			s.Policy.UpstreamProxy = p.Settings.UpstreamProxy.String()
		}
	})
}

// change changes what is in force. What that ends has ended when do returns: only then comes what takes longer for what the
// agent has made, and no newer change waits for it. Then change waits for the guard to have it, and says what is in force:
// a long policy takes long to write, which takes processors away from the guard.
func (k *keeper) change(ctx context.Context, do func() (taken <-chan wire.Message, err error)) error {
	k.book.changing.Lock()
	before := k.book.now()
	taken, err := do()
	changed := k.book.now() != before
	k.publish()
	k.book.changing.Unlock()
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		if k.leases.settle(context.WithoutCancel(ctx)) {
			k.publishLeases(^uint64(0)) // explain shows no lease that has just ended
		}
	}()
	var late <-chan time.Time
	if err != nil { // where the kernel takes nothing, settle waits behind each other try, for longer than a person does
		late = time.After(time.Second)
	}
	select {
	case <-settled:
	case <-late:
	}
	k.guard.awaitTaken(taken)
	if changed {
		k.publishPolicy()
	}
	return err
}

// adopt brings what is next into force, and hands it to the guard: the kernel first, so that nothing is open that it
// denies. What is returned is closed when the guard has it, or is gone. An error leaves what was in force.
func (k *keeper) adopt(ctx context.Context, next *inForce) (<-chan wire.Message, error) {
	plan, err := k.rules.plan(next)
	if err != nil {
		return nil, err
	}
	if err := k.broker.prepare(next.policy.Settings); err != nil {
		return nil, err
	}
	put := func() error { return k.rules.put(ctx, plan) }
	if err := k.leases.adopt(ctx, next.policy, put); err != nil {
		return nil, err
	}
	k.book.present.Store(next)
	taken := k.guard.push()
	k.broker.push()
	k.book.publishRoutes()
	k.publishServers(next.policy)
	return taken, nil
}

// reload takes over a changed policy. One that can't be read leaves the old one in force.
func (k *keeper) reload(ctx context.Context) error {
	return k.change(ctx, func() (<-chan wire.Message, error) {
		files, p, err := k.book.read()
		var taken <-chan wire.Message
		if err == nil {
			taken, err = k.adoptFiles(ctx, files, p)
			k.book.unadopted.Store(err != nil)
		}
		if err != nil {
			taken = k.lowerCeiling(ctx, files)
			k.log.Error("the policy was not reloaded; the old one stays", "error", err)
			k.record(audit.Event{Kind: audit.Policy, Verdict: audit.Fault, Reason: "reload failed, the old policy stays: " + text.InOneLine(err)})
			k.update(func(s *state.State) { s.Policy.Fault = err.Error(); s.Policy.Attempts++ })
		}
		return taken, err
	})
}

// adoptFiles is adopt of what was read from files, with the grants on top.
func (k *keeper) adoptFiles(ctx context.Context, files *policy.Bundle, p *policy.Policy) (<-chan wire.Message, error) {
	next := &inForce{bundle: files, policy: p, grants: k.book.now().grants.Clone()}
	next.grants.Adopt(grant.ReadSaved(k.book.savedIn(files)))
	ended, what := endAbove(&next.grants, p), "policy reloaded"
	if was := k.book.files.Phase; was != files.Phase {
		ended, what = append(ended, endOfPhase(&next.grants, was)...), "phase "+files.Phase
	}
	if b := next.grants.Over(files); len(b.Files) > len(files.Files) {
		var err error
		if next, err = k.book.over(files, next.grants); err != nil {
			return nil, err
		}
	}
	taken, err := k.adopt(ctx, next)
	if err != nil {
		return nil, err
	}
	k.book.files = files
	k.book.remember(files.Signed)
	k.book.cutsPaid(ended)
	k.recordPolicy(next.policy, files.Signed, what)
	k.book.tellPhase(files)
	k.book.notifier.look()
	k.book.announce(next.grants)
	if k.broker != nil && files.Phase != policy.Sealed {
		k.unless(k.agent.publishAgent(), "how the agent is confined") // its environment names the routes
	}
	return taken, nil
}

// changeGrants brings a changed book into force, as a reload does. If that fails, the book
// stays as it was, but for what only takes away, which is owed.
func (k *keeper) changeGrants(ctx context.Context, change func(*grant.Book) ([]audit.Event, error)) error {
	return k.change(ctx, func() (<-chan wire.Message, error) {
		grants := k.book.now().grants.Clone()
		events, err := change(&grants)
		if err != nil {
			return nil, err
		}
		if made, gone := grants.SavedSince(k.book.now().grants); len(made)+len(gone) > 0 {
			return k.saveGrants(ctx, grants, made, gone, events)
		}
		next, err := k.book.over(k.book.files, grants)
		if err != nil {
			return nil, err
		}
		taken, err := k.adopt(ctx, next)
		if err != nil {
			err = k.book.owe(grants, events, err)
		} else {
			k.update(func(s *state.State) { s.Policy.Counts = next.policy.Counts() })
			k.book.cutsPaid(events)
		}
		k.book.announce(k.book.now().grants)
		return taken, err
	})
}

func (k *keeper) expireGrants(ctx context.Context) {
	look := k.book.now().grants.Clone()
	if len(look.Expire(time.Now())) == 0 {
		return
	}
	// Its error is in the log and the status.
	_ = k.changeGrants(ctx, func(b *grant.Book) (events []audit.Event, _ error) {
		for _, g := range b.Expire(time.Now()) {
			events = append(events, g.Event(audit.Info, "expired", nil))
		}
		return events, nil
	})
}

// endGrants is for a keeper that ends while the rules stay: nobody would end its grants.
func (k *keeper) endGrants(ctx context.Context) {
	none := errors.New("no grants")
	err := k.changeGrants(ctx, func(b *grant.Book) (events []audit.Event, _ error) {
		for _, g := range b.Clone().List {
			if g.Kind == grant.Allow && !g.Saved {
				if _, err := b.End(g.Number, grant.Decision{}); err != nil {
					return nil, err
				}
				events = append(events, g.Event(audit.Info, "ended with the keeper", nil))
			}
		}
		if len(events) == 0 {
			return nil, none
		}
		return events, nil
	})
	if err != nil && !errors.Is(err, none) {
		k.log.Error("ending grants", "error", err)
	}
}

// owe keeps the grants of a change that failed, if that took something away and opened nothing: whatever changes the
// policy next brings the cut along, and the keeper tries it again. The error says so then.
func (b *book) owe(grants grant.Book, events []audit.Event, failed error) error {
	was := *b.now()
	cuts := grants.OnlyCuts(was.grants)
	if cuts {
		was.grants = grants
		b.present.Store(&was)
		b.owedCuts = append(b.owedCuts, events...)
	}
	news := false
	b.update(func(s *state.State) {
		if owed := cuts || s.Grants.Fault != ""; owed {
			news = s.Grants.Fault != failed.Error()
			s.Grants.Fault = failed.Error()
		}
	})
	if cuts {
		failed = fmt.Errorf("not in force yet, and tried again until it is: %w", failed)
	}
	if news { // and not each time that it is tried
		b.log.Error("taking away what was granted", "error", failed)
		b.record(audit.Event{Kind: audit.Grant, Verdict: audit.Fault, Reason: "a denial, or the end of a grant, is owed: " + failed.Error()})
	}
	return failed
}

// cutsPaid is for when a policy is in force that has the grants in it: it says what was owed, and then the events.
func (b *book) cutsPaid(events []audit.Event) {
	for _, e := range append(b.owedCuts, events...) {
		b.record(e)
	}
	b.owedCuts = nil
	b.update(func(s *state.State) { s.Grants.Fault = "" })
}

func (k *keeper) payCuts(ctx context.Context) {
	if k.status().Grants.Fault != "" { // its error is in the log and the status
		_ = k.changeGrants(ctx, func(*grant.Book) ([]audit.Event, error) { return nil, nil })
	}
}

// beside says that an entry is, or would be, about a host that a route of the broker leads to.
func (b *book) beside(entry string) error {
	for _, r := range b.policy().Beside(entry, allowlist.Files) {
		return fault.New(fault.Usage, "ask the broker: agent-init explain "+r.Name,
			"%s is reached through the broker alone, by the route %s (%s)", r.To, r.Name, r.Source)
	}
	return nil
}

// request books what the agent proposes. It opens nothing.
func (b *book) request(m wire.Message) (uint64, error) {
	b.changing.Lock()
	defer b.changing.Unlock()
	if err := b.beside(m.Name); err != nil {
		return 0, err
	}
	if err := b.above(m.Name); err != nil {
		return 0, err
	}
	next := *b.now()
	next.grants = next.grants.Clone()
	asked := grant.Grant{Target: m.Name, Reason: m.Text, UID: m.UID, PID: int(m.PID), Held: m.Flag == wire.ForHeld}
	if afar := b.policy().Settings.Approvals; afar.Secret != "" {
		asked.Longest = int64(time.Duration(afar.Most) / time.Second)
	}
	g, isNew, err := next.grants.Request(asked, time.Now())
	if err != nil {
		return 0, err
	}
	b.present.Store(&next)
	if isNew {
		b.log.Warn("the agent asks for a grant", "target", g.Target, "number", g.Number)
		what := "requested by the agent"
		if g.Held {
			what = "requested by a question that waits"
		}
		b.record(g.Event(audit.Info, what, &control.Peer{UID: m.UID, PID: int(m.PID)}))
	}
	b.announce(next.grants)
	b.publish()
	return uint64(g.Number), nil
}

func (k *keeper) watchFiles(ctx context.Context) {
	if what := k.book.changedFiles(); what != "" {
		k.log.Info("the policy's files have changed", "files", what)
		k.record(audit.Event{Kind: audit.Policy, Verdict: audit.Info, Reason: "changed: " + what})
		_ = k.reload(ctx) // its error is in the log and the status
	}
}

// changedFiles says which files are others than those in force, or "" if they say the same: a kubelet writes a pod's
// /etc/hosts anew for each container. A policy that was refused is read again in any case.
func (b *book) changedFiles() string {
	state := b.filesState() // before: a change meanwhile is noticed, and no other waits for a disk that is slow
	b.changing.Lock()
	defer b.changing.Unlock()
	if !b.watched.due(state) {
		return ""
	}
	files, err := b.readFiles()
	if err != nil || b.status().Policy.Fault != "" {
		return "files in " + b.config.PolicyDir
	}
	names := files.Differs(b.files)
	if len(names) == 0 {
		b.watched.loaded = state
	}
	return strings.Join(names, ", ")
}
