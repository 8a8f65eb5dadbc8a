package keeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// A ceiling is a part of the bundle: policy.Parse makes no policy but below it, whoever adds to the bundle. What stands
// here is about what is no part of a policy, and about a ceiling that changes.

// permitted says which flag is above the ceiling.
func (b *base) permitted(c *policy.Ceiling) error {
	weak := map[string]int{"require": 0, "warn": 1, "off": 2}
	above := func(flag, key string) error {
		return fault.New(fault.Policy, "start it without "+flag+", or ask whoever made the ceiling",
			"%s is above the ceiling (%s)", flag, c.Place(key))
	}
	switch {
	case c == nil:
	case b.config.UnsafeNoFirewall:
		return above("--unsafe-no-firewall", "mode")
	case b.config.Monitor && c.Mode != "monitor":
		return above("--mode monitor", "mode")
	case weak[b.config.Selftest] > weak[c.SelfTest]:
		return above("--selftest "+b.config.Selftest, "selftest")
	}
	return nil
}

// notOlder refuses a ceiling that takes the place of a newer one, or none in the place of one.
func (b *book) notOlder(files *policy.Bundle) error {
	switch was := b.files; {
	case was == nil:
	case was.Ceiling != nil && files.Ceiling == nil:
		return fault.New(fault.Policy, "put it back, or start agent-init without it", "the ceiling is gone")
	case files.Signed.Serial < was.Signed.Serial:
		return fault.New(fault.Policy, "sign the ceiling anew", "the ceiling is older (%d) than the one in force (%d)", files.Signed.Serial, was.Signed.Serial)
	}
	return nil
}

// lowerCeiling brings the ceiling of files into force above the policy that is, where files themselves can't be. Whatever is
// wrong with a policy, its ceiling counts: what can't go on below it ends.
func (k *keeper) lowerCeiling(ctx context.Context, files *policy.Bundle) (taken <-chan wire.Message) {
	if files == nil || k.book.files == nil || slices.EqualFunc(files.Ceiling, k.book.files.Ceiling, policy.File.Equal) && files.Signed == k.book.files.Signed {
		return nil
	}
	if err := k.book.notOlder(files); err != nil {
		return nil // read has said so
	}
	old := *k.book.files
	old.Ceiling, old.Signed = files.Ceiling, files.Signed
	adopt := func() error {
		p, err := k.book.policy().Next(&old, allowlist.Files)
		if err != nil {
			return err
		}
		taken, err = k.adoptFiles(ctx, &old, p)
		return err
	}
	err := adopt()
	if _, its := errors.AsType[*policy.CeilingError](err); err != nil && !its { // then nothing is allowed
		k.log.Error("the policy in force can't go on below the ceiling", "error", err)
		old.Files, old.Phases = nil, nil
		if err = adopt(); err != nil { // it wants what can't be had before the next start, such as a proxy
			k.log.Error("the ceiling can't be had", "error", err)
			old.Ceiling = []policy.File{{Name: "ceiling.d/unusable.yaml", Data: []byte("entries: none\n")}}
			err = adopt()
		}
	}
	if err != nil {
		k.log.Error("the ceiling is not in force", "error", err)
		k.record(audit.Event{Kind: audit.Policy, Verdict: audit.Fault, Reason: "the ceiling is not in force: " + err.Error()})
		return nil
	}
	left := "the policy that was"
	if old.Files == nil {
		left = "nothing is allowed"
	}
	k.record(audit.Event{Kind: audit.Policy, Verdict: audit.Info, Reason: "the ceiling is in force, and below it " + left})
	return taken
}

// remember has no older ceiling be taken at a later start. That it can't be holds no ceiling back.
func (b *book) remember(signed policy.Signed) {
	if err := signed.Remember(b.config.SeenFile); err != nil {
		b.log.Error("remembering which ceiling was in force", "error", err)
		b.record(audit.Event{Kind: audit.Policy, Verdict: audit.Fault, Reason: "which ceiling is in force can't be remembered: " + err.Error()})
	}
}

// recordCuts says what the ceiling stopped.
func (b *base) recordCuts(p *policy.Policy, signed policy.Signed) {
	const most = 20 // in the log; agent-init check has all of them
	cuts := p.Cuts()
	for _, c := range cuts[:min(len(cuts), most)] {
		b.record(audit.Event{Kind: audit.Policy, Verdict: audit.Info, Rule: c.By, Reason: fmt.Sprintf("%v: %s is %v", c.Source, c.Text, c)})
	}
	b.update(func(s *state.State) {
		s.Ceiling = nil
		if p.Ceiling() != nil {
			s.Ceiling = &state.Ceiling{Stopped: len(cuts), Signed: signed}
			for _, c := range cuts[:min(len(cuts), 3)] {
				s.Ceiling.First = append(s.Ceiling.First, fmt.Sprintf("%v: %s is %v", c.Source, c.Text, c))
			}
		}
	})
}

// above says that an entry is, or would be, above the ceiling.
func (b *book) above(entry string) error {
	for _, c := range b.policy().Above(entry, allowlist.Files) {
		return fault.New(fault.Usage, "ask for less, or ask whoever made the ceiling: docs/ceiling.md", "%s is %s", c.Text, c)
	}
	return nil
}

// endAbove ends the grants and requests that are above the ceiling of p. What was saved stands in a file: it is narrowed.
func endAbove(b *grant.Book, p *policy.Policy) (events []audit.Event) {
	for _, g := range slices.Clone(b.List) {
		cuts := p.Above(g.Target, allowlist.Files)
		if cuts == nil || g.Kind == grant.Deny || g.Saved {
			continue
		}
		by := grant.Decision{Time: time.Now(), Reason: cuts[0].String()}
		if _, err := b.End(g.Number, by); err == nil {
			events = append(events, g.Event(audit.Info, "ended, "+cuts[0].String(), nil))
		}
	}
	return events
}
