package xtables

import (
	"errors"
	"slices"

	"github.com/vishvananda/netlink/nl"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

func (x *Backend) Seal(sealed plan.Plan) error {
	if live, err := x.read(); err == nil && shut(live) { // put says why it can't be read
		return nil
	}
	return nfnetlink.Explain("seal", x.put(sealed))
}

// shut says whether the tables drop by default: by their policies, and at the end of our chains, which come first.
func shut(live map[plan.Family]xtLive) bool {
	for _, f := range xtFamilies() {
		t := live[f].table("filter")
		for _, h := range closedHooks() {
			own := t.rules[h.chain]
			if t.policies[h.builtin] != "DROP" || len(t.rules[h.builtin]) == 0 || t.rules[h.builtin][0] != h.jump() ||
				len(own) == 0 || own[len(own)-1] != "-j DROP" {
				return false
			}
		}
	}
	return true
}

func closedHooks() []xtHook {
	return []xtHook{
		{"OUTPUT", xtPrefix + "output", true}, {"INPUT", xtPrefix + "input", true}, {"FORWARD", xtPrefix + "forward", true},
	}
}

func (x *Backend) Apply(p, _ plan.Plan) error {
	if x.mark.text == p.String() {
		if diffs, err := x.differences(p); err == nil && len(diffs) == 0 {
			return nil
		}
	}
	return nfnetlink.Explain("apply", x.put(p))
}

// put brings p into the kernel: sets, rules, and then what is no longer used goes.
func (x *Backend) put(p plan.Plan) error {
	want, err := x.render(p)
	if err != nil { // before anything is changed
		return err
	}
	if err := x.makeSets(p); err != nil {
		return err
	}
	if err := x.load(want); err != nil {
		return err
	}
	live, err := x.read()
	if err != nil {
		return err
	}
	if err := x.note(p, want, live); err != nil {
		return err
	}
	return x.dropSets(p)
}

func (x *Backend) load(want map[plan.Family][]xtTable) error {
	live, err := x.read()
	if err != nil {
		return err
	}
	for _, f := range xtFamilies() {
		if err := x.tools.load(f, restoreText(want[f], live[f], false)); err != nil {
			return err
		}
	}
	return nil
}

// makeSets makes sure of every set of p. Static ones have names that tell what they hold, so that rules in force don't
// see them change; one that is tampered with is replaced in one step.
func (x *Backend) makeSets(p plan.Plan) error {
	for _, part := range partsOfAll(p) {
		live, err := dumpSet(part.name)
		if err != nil {
			// It may hold what can't be read, since it isn't ours.
			live = &ipsetDump{foreign: true}
		}
		missing, extra := live.differs(part)
		switch {
		case live == nil:
			err = newSet(part.ipset, part.entries())
		case live.is(part.ipset) && (part.filled() || missing+extra == 0 || part.of.Ending()):
			err = nil
		case live.is(part.ipset) || live.typ == part.typ && live.family == part.family:
			err = replaceSet(part, live)
		default:
			err = x.remakeSet(part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// differs counts what live lacks of a static set, and what it has besides.
func (live *ipsetDump) differs(want ipsetPart) (missing, extra int) {
	if live == nil {
		return len(want.boxes), 0
	}
	for _, b := range want.boxes {
		if _, ok := live.entries[b]; !ok {
			missing++
		}
	}
	return missing, len(live.entries) - (len(want.boxes) - missing)
}

func (p ipsetPart) entries() []ipsetEntry {
	var out []ipsetEntry
	for _, b := range p.boxes {
		if !p.of.Ending() {
			out = append(out, ipsetEntry{b, p.of.Left()})
		}
	}
	return out
}

func newSet(d ipset, entries []ipsetEntry) error {
	if err := createSet(d); err != nil {
		return err
	}
	return setEntries(nl.IPSET_CMD_ADD, d, entries)
}

// replaceSet puts a set in the place of one of the same type, in use. Leases are kept.
func replaceSet(part ipsetPart, live *ipsetDump) error {
	entries := part.entries()
	if part.timed && part.filled() {
		for b, ttl := range live.entries {
			if ttl > 0 {
				entries = append(entries, ipsetEntry{b, ttl})
			}
		}
	}
	d := part.ipset
	d.name = xtPrefix + "new"
	if err := destroySet(d.name); err != nil { // of one that was cut short
		return err
	}
	if err := newSet(d, entries); err != nil {
		return err
	}
	if err := setCommand(nl.IPSET_CMD_SWAP, part.name, nfnetlink.Text(nl.IPSET_ATTR_SETNAME2, d.name)...); err != nil {
		return err
	}
	return destroySet(d.name)
}

// remakeSet removes a set that can't be replaced in place. If our rules use it,
// nothing passes until the right ones are loaded.
func (x *Backend) remakeSet(part ipsetPart) error {
	err := destroySet(part.name)
	if errors.Is(err, nl.IPSetError(nl.IPSET_ERR_BUSY)) {
		nothing := xtTable{name: "filter", hooks: closedHooks()}
		for _, h := range nothing.hooks {
			nothing.chains = append(nothing.chains, xtChain{h.chain, []string{"-j DROP"}})
		}
		if err = x.load(map[plan.Family][]xtTable{plan.IPv4: {nothing}, plan.IPv6: {nothing}}); err == nil {
			err = destroySet(part.name)
		}
	}
	if err != nil {
		return err
	}
	return newSet(part.ipset, part.entries())
}

// dropSets removes the sets that p doesn't use. One that is still used is left
// to be noticed: it is by rules that aren't these.
func (x *Backend) dropSets(p plan.Plan) error {
	if p.Reduced {
		return nil
	}
	names, err := setNames(xtPrefix)
	if err != nil {
		return err
	}
	wanted := partsOfAll(p)
	for _, name := range names {
		if slices.ContainsFunc(wanted, func(w ipsetPart) bool { return w.name == name }) {
			continue
		}
		if err := x.destroyUnused(name); err != nil {
			return err
		}
	}
	return nil
}

func (x *Backend) destroyUnused(name string) error {
	err := destroySet(name)
	if errors.Is(err, nl.IPSetError(nl.IPSET_ERR_BUSY)) {
		x.log.Debug("a set is still used", "set", name)
		return nil
	}
	return err
}
