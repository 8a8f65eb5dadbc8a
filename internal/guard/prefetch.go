package guard

import (
	"context"
	"runtime/debug"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/policy"
)

// prefetch begins to resolve the names that the policy spells out, as far as
// the keeper lets it, and leaves those of an earlier policy.
func (g *guard) prefetch(ctx context.Context, p *policy.Policy, a wire.Ahead) {
	ctx, stop := context.WithCancel(ctx)
	g.mu.Lock()
	g.ahead = a
	if g.stop != nil {
		g.stop()
	}
	g.stop = stop
	g.mu.Unlock()
	if a != wire.AheadNone {
		go g.resolveAhead(ctx, p, a)
	}
}

// fewNames are resolved at once: they don't slow the start down.
const fewNames = 100

// resolveAhead takes the required names first, so that the agent finds them
// leased.
func (g *guard) resolveAhead(ctx context.Context, p *policy.Policy, a wire.Ahead) {
	var first, rest []string
	for _, r := range p.Names() {
		if r.Required {
			first = append(first, r.Name)
		} else {
			rest = append(rest, r.Name)
		}
	}
	if a == wire.AheadFirst && len(rest) > fewNames {
		rest = nil
	}
	for _, names := range [][]string{first, rest} {
		if err := g.resolver.Prefetch(ctx, names); err != nil && ctx.Err() == nil {
			g.log.Info("resolving ahead", "error", err)
		}
	}
	if len(rest) > fewNames { // they leave megabytes behind
		debug.FreeOSMemory()
	}
}
