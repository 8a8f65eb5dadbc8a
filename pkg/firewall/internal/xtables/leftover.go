package xtables

import (
	"context"
	"fmt"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// Left says whether there may be chains of the xtables backend: its sets show that.
func Left() (bool, error) {
	names, err := setNames(xtPrefix)
	if nfnetlink.Absent(err) {
		return false, nil
	}
	return len(names) > 0, nfnetlink.Explain("look for rules of the xtables backend", err)
}

// Remove removes the chains and sets of the xtables backend.
func Remove(ctx context.Context, opts Options) error {
	tools, err := findTools(ctx, xtDirs(), "", lockFile(opts.LockFile), opts.Run)
	if err != nil {
		return fmt.Errorf("rules of the xtables backend are there, and can't be removed: %w", err)
	}
	if err := removeChains(ctx, tools); err != nil {
		return err
	}
	x := Backend{log: opts.Log}
	return nfnetlink.Explain("remove rules of the xtables backend", x.dropSets(plan.Plan{}))
}

// removeChains removes our chains from the tables of variants of iptables.
func removeChains(ctx context.Context, variants []xtTools) error {
	for _, t := range variants {
		for _, f := range xtFamilies() {
			live, err := t.readUsed(ctx, f)
			if err != nil {
				return nfnetlink.Explain("look for rules of the xtables backend", err)
			}
			if text := removeText(live); text != "" {
				if err := t.load(ctx, f, text); err != nil {
					return nfnetlink.Explain("remove rules of the xtables backend", err)
				}
			}
		}
	}
	return nil
}

// RemoveOthers removes what the other variants hold, and the sets that no rule of this one uses.
func (x *Backend) RemoveOthers(ctx context.Context) error {
	if err := removeChains(ctx, x.others); err != nil {
		return err
	}
	return x.dropSets(x.mark.plan)
}
