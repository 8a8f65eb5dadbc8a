package xtables

import (
	"context"
	"fmt"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// probe loads, into chains where no packet comes, one of everything that reduced
// plans are made of, reads it back and removes it.
func (r *reducedXT) probe(ctx context.Context) error {
	for _, f := range xtFamilies() {
		tables, err := reducedProbe(f)
		if err != nil {
			return err
		}
		text := restoreText(tables, nil)
		err = r.tools.load(ctx, f, text)
		if err == nil {
			err = r.probed(ctx, f, tables)
		}
		if e := r.removeProbe(ctx, f, nil); err == nil {
			err = e
		}
		if err != nil {
			return fmt.Errorf("probe iptables-legacy (inside gVisor it needs runsc --net-raw, of 2026 or later): %w: IPv%d: %w%s", nfnetlink.ErrUnsupported, f, err, blamed(text, err))
		}
	}
	return nil
}

// reducedProbe returns chains with one of everything, which nothing jumps to.
func reducedProbe(f plan.Family) ([]xtTable, error) {
	tcp, udp, a := plan.MatchProto{Proto: plan.ProtoTCP}, plan.MatchProto{Proto: plan.ProtoUDP}, probeAddr(f)
	return probeTables(xtRenderer{family: f}, []probeRules{
		{"filter", []plan.Rule{
			plan.To(plan.Drop{}, plan.MatchIn{}), plan.To(plan.Drop{}, plan.MatchOut{}), plan.To(plan.Drop{}, plan.MatchDst{P: a}, tcp, plan.MatchPort{Port: 1}, plan.MatchUID{UID: 1}, plan.MatchGID{GID: 1}),
			plan.To(plan.Drop{}, tcp, plan.MatchSrcPort{Port: 1}, plan.MatchOpening{}), plan.To(plan.Drop{}, tcp, plan.MatchReset{}), plan.To(plan.Reset{}, tcp), plan.To(plan.NoPort{}),
		}},
		{"raw", []plan.Rule{plan.To(plan.Drop{}, tcp, plan.MatchPort{Port: 1}, plan.MatchOpening{}), plan.To(plan.Drop{})}},
		{"nat", []plan.Rule{plan.To(plan.Leave{}, plan.MatchUID{UID: 1}, plan.MatchGID{GID: 1}), plan.To(plan.Redirect{Port: 1}, udp, plan.MatchPort{Port: 53}), plan.To(plan.Redirect{Port: 1}, tcp, plan.MatchPort{Port: 53})}},
	})
}

// probed reads the chains back: gVisor takes some matches and forgets them.
func (r *reducedXT) probed(ctx context.Context, f plan.Family, tables []xtTable) error {
	live, err := r.tools.read(ctx, f)
	if err != nil {
		return err
	}
	for _, t := range tables {
		for _, c := range t.chains {
			var got []string
			if l := live[t.name]; l != nil {
				got = l.rules[c.name]
			}
			if err := tells(c.rules, got); err != nil {
				return fmt.Errorf("table %s: %w", t.name, err)
			}
		}
	}
	return nil
}
