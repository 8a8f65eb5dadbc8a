package keeper

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// A phase is a policy of the bundle that is in force: see policy.Bundle. Between any two of them nothing is allowed, so
// that nothing of one goes on in the next, and whatever ends the keeper there, or fails, leaves a sealed network.

// phase is the one in force, or that the start begins in.
func (b *book) phase() string { return b.now().bundle.Phase }

// brokers says whether there is anything for a broker in this phase, or in those that follow.
func (b *book) brokers() bool {
	if b.policy().Broker != nil || b.phase() == policy.Run {
		return b.policy().Broker != nil
	}
	files := *b.files
	files.Phase = policy.Run
	p, _, err := b.parse(&files)
	return err == nil && p.Broker != nil
}

// ofOtherPhases are some names that other phases allow, and this one does not. A self-test tries them.
func (b *book) ofOtherPhases() (names []string) {
	const most = 4
	here := b.now()
	for _, phase := range []string{policy.Setup, policy.Verify} {
		other := *here.bundle
		if other.Phase = phase; other.Phases[phase] == nil {
			continue
		}
		p, err := here.policy.Next(&other, allowlist.Files) // as it was when it was read
		for i := 0; err == nil && i < len(p.Names) && len(names) < most; i++ {
			if name := p.Names[i].Name; !here.policy.Lookup(name).Allowed && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// tellPhase has the status know the phase of files, where there are several.
func (b *book) tellPhase(files *policy.Bundle) {
	b.update(func(s *state.State) {
		if s.Policy.Phase = ""; files.Phases != nil || files.Phase != policy.Run {
			s.Policy.Phase = files.Phase
		}
	})
}

// parse is policy.Parse of files, with the credentials as they are now.
func (b *book) parse(files *policy.Bundle) (p *policy.Policy, routesWrong bool, err error) {
	before := &policy.Policy{}
	if now := b.now(); now != nil {
		before = now.policy
	}
	p, err = before.NextWith(files, allowlist.Files, func(routes []policy.PlacedRoute) ([]string, policy.ErrorList) {
		absent, wrong := b.credentials.absent(routes)
		routesWrong = wrong != nil
		return absent, wrong
	})
	return p, routesWrong, err
}

// endOfPhase ends the grants that were made in the phase that is over. What was saved stands in a file, and counts in each.
func endOfPhase(b *grant.Book, was string) (events []audit.Event) {
	for _, g := range slices.Clone(b.List) {
		if g.Kind != grant.Allow || g.Saved {
			continue
		}
		if _, err := b.End(g.Number, grant.Decision{Time: time.Now(), Reason: "the phase is over"}); err == nil {
			events = append(events, g.Event(audit.Info, "ended with the phase "+was, nil))
		}
	}
	return events
}

// mayEnter says why there is no way to a phase.
func (b *book) mayEnter(to string) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	at, dir := b.files.Phase, filepath.Join(b.config.PolicyDir, "phases", to)
	switch {
	case !slices.Contains([]string{policy.Setup, policy.Run, policy.Verify}, to):
		return fault.New(fault.Usage, "use one of: setup run verify", "there is no phase %q", to)
	case to == at:
		return nil
	case to == policy.Setup:
		return fault.New(fault.Failure, "start a container anew with --phase setup", "setup comes once, at the start, and this is %s", at)
	case to == policy.Verify && b.files.Phases[to] == nil:
		return fault.New(fault.Failure, "make the directory "+dir+", which may be empty: docs/phases.md", "no phase verify is configured")
	}
	return nil
}

// feasible says why the rules of a phase can't be made.
func (k *keeper) feasible(to string) error {
	k.book.changing.Lock()
	defer k.book.changing.Unlock()
	files := *k.book.files
	files.Phase = to
	p, _, err := k.book.parse(&files)
	if err == nil {
		_, err = k.rules.plan(&inForce{bundle: &files, policy: p})
	}
	return err
}

// bring has a phase be in force. An error leaves the one that is.
func (k *keeper) bring(ctx context.Context, to string) error {
	return k.change(ctx, func() (<-chan wire.Message, error) {
		files := *k.book.files
		files.Phase = to
		p, _, err := k.book.parse(&files)
		if err != nil {
			return nil, err
		}
		k.rules.eras.Add(1) // flows of before that were silent meanwhile end, too
		return k.adoptFiles(ctx, &files, p)
	})
}

// seal has nothing be allowed. Where the kernel refuses even that, it is tried again until it is so, or a change succeeds.
func (k *keeper) seal(ctx context.Context) error {
	err := k.bring(ctx, policy.Sealed)
	if k.book.unsealed.Store(err != nil); err != nil {
		return fmt.Errorf("NOT SEALED, which is tried again: %w", err)
	}
	return nil
}

// sealOwed seals what could not be sealed when it had to be.
func (k *keeper) sealOwed(ctx context.Context) {
	k.proving.Lock()
	defer k.proving.Unlock()
	if !k.book.unsealed.Load() || k.seal(ctx) != nil { // its error is in the status already
		return
	}
	k.record(audit.Event{Kind: audit.Phase, Verdict: audit.Fault, Reason: "sealed now, which was owed"})
	k.update(func(s *state.State) { s.Policy.PhaseFault = "the change failed, and all is sealed now" })
	k.publish()
}

// proveIn changes the phase, and proves it from the agent's side. What it returns says in which phase all is then. Its error
// says why that is another than before, or than asked for.
func (k *keeper) proveIn(ctx context.Context, to string) (out ask.PhaseChange, err error) {
	k.proving.Lock()
	defer k.proving.Unlock()
	out.Version, out.Was = 1, k.book.phase()
	defer func() { out.Phase = k.book.phase() }()
	if err := k.book.mayEnter(to); err != nil {
		return out, err
	}
	if to == out.Was {
		out.Proof, err = k.proveNow(ctx)
		return out, err
	}
	// What can't be had is no reason to end the agent's run. To stay in setup is no choice, though.
	if err := k.feasible(to); err != nil && out.Was != policy.Setup {
		return out, err
	}
	if err := k.seal(ctx); err != nil {
		if out.Was == policy.Run { // which is as closed as it was
			k.book.unsealed.Store(false)
		}
		return out, err
	}
	if err = k.bring(ctx, to); err == nil {
		out.Proof, err = k.proveNow(ctx)
	}
	if err != nil {
		err = errors.Join(err, k.seal(ctx))
	}
	return out, err
}

// proveNow runs the self-test of the phase in force. A failure is an error if agent-init was started so that it is one.
func (k *keeper) proveNow(ctx context.Context) (*selftest.Report, error) {
	if k.config.Selftest == "off" {
		return nil, nil
	}
	if s := k.book.policy().Settings; len(s.Inspected) > 0 || s.UpstreamProxy.Host != "" { // as at the start: the broker is asked
		k.broker.awaitTaken(k.broker.push())
	}
	report, err := k.probe(ctx)
	if err != nil {
		return nil, fmt.Errorf("the self-test could not be run: %w", err)
	}
	k.proved(report)
	if !report.OK && k.config.Selftest == "require" {
		return &report, fault.New(fault.SelfTest, "mend what is named, and ask for the phase again", "the self-test failed: %s", strings.Join(report.Failures(), "; "))
	}
	return &report, nil
}

// changePhase is proveIn, with a line in the log, and in the status what went wrong.
func (k *keeper) changePhase(ctx context.Context, to, by string, p *control.Peer) (ask.PhaseChange, error) {
	out, err := k.proveIn(ctx, to)
	e := audit.Event{Kind: audit.Phase, Verdict: audit.Info, Reason: fmt.Sprintf("from %s to %s by %s", out.Was, to, by)}
	if p != nil {
		e.UID, e.PID = &p.UID, p.PID
	}
	stays := out.Phase == out.Was && out.Phase != policy.Sealed
	switch {
	case err == nil && out.Proof == nil:
		e.Reason += ", not proved"
	case err == nil && out.Proof.OK:
		e.Reason += ", proved by " + sizeOfReport(*out.Proof)
	case err == nil:
		e.Verdict, e.Reason = audit.Fault, e.Reason+": the self-test failed, and --selftest warn lets it"
	case stays:
		e.Verdict, e.Reason = audit.Deny, fmt.Sprintf("%s, and it stays %s: %v", e.Reason, out.Phase, err)
	default:
		e.Verdict, e.Reason = audit.Fault, fmt.Sprintf("%s failed, and it is %s now: %v", e.Reason, out.Phase, err)
	}
	k.record(e)
	k.update(func(s *state.State) {
		switch {
		case err == nil:
			s.Policy.PhaseFault = ""
		case !stays || p == nil: // what a person is told at once is no fault that stays
			s.Policy.PhaseFault = fmt.Sprintf("%s is not in force: %v", to, err)
		}
	})
	k.publish()
	return out, err
}

// askPhase is changePhase for a person. A file that says another phase has the last word.
func (k *keeper) askPhase(ctx context.Context, p control.Peer, r control.Request) control.Reply {
	said, err := policy.ReadPhase(k.config.PolicyDir)
	if err == nil && said != "" && said != r.Target {
		path := filepath.Join(k.config.PolicyDir, "phase")
		return ask.Refuse(fault.Failure, "write it there, or take the file out", "%s says %s", path, said)
	}
	out, err := k.changePhase(ctx, r.Target, "a command", &p)
	if err != nil && out.Phase == out.Was && out.Proof == nil && out.Phase != policy.Sealed {
		return ask.RefuseWith(err)
	}
	if err != nil {
		out.Fault = err.Error()
	}
	return ask.Answer(out)
}

// followPhase changes the phase as the file says, until ctx ends, and seals what should be sealed. It reads the file apart
// from the policy, which may have errors: those hold nothing open.
func (k *keeper) followPhase(ctx context.Context) {
	heard := ""
	for tick := time.Tick(time.Second); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		if k.book.unsealed.Load() {
			k.sealOwed(ctx)
		}
		said, err := policy.ReadPhase(k.config.PolicyDir)
		word := said
		if err != nil {
			word = err.Error()
		}
		if word == heard {
			continue
		}
		heard = word
		switch at := k.book.phase(); {
		case err != nil:
			k.log.Error("the phase stays as it is", "error", err)
			k.record(audit.Event{Kind: audit.Phase, Verdict: audit.Fault, Reason: "it stays " + at + ": " + err.Error()})
			k.update(func(s *state.State) { s.Policy.PhaseFault = err.Error() })
		case said == "" || said == at:
			k.update(func(s *state.State) {
				if at != policy.Sealed {
					s.Policy.PhaseFault = ""
				}
			})
		default:
			_, _ = k.changePhase(ctx, said, "the file", nil) // its error is in the log and the status
		}
		k.publish()
	}
}
