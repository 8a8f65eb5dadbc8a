package firewall

import (
	"context"
	"fmt"
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
			return fmt.Errorf("probe iptables-legacy (inside gVisor it needs runsc --net-raw, of 2026 or later): %w: IPv%d: %w%s", ErrUnsupported, f, err, blamed(text, err))
		}
	}
	return nil
}

// reducedProbe returns chains with one of everything, which nothing jumps to.
func reducedProbe(f family) ([]xtTable, error) {
	tcp, udp, a := matchProto{proto: protoTCP}, matchProto{proto: protoUDP}, probeAddr(f)
	return probeTables(xtRenderer{family: f}, []probeRules{
		{"filter", []rule{
			to(drop{}, matchIn{}), to(drop{}, matchOut{}), to(drop{}, matchDst{a}, tcp, matchPort{1}, matchUID{uid: 1}, matchGID{gid: 1}),
			to(drop{}, tcp, matchSrcPort{1}, matchOpening{}), to(drop{}, tcp, matchReset{}), to(reset{}, tcp), to(noPort{}),
		}},
		{"raw", []rule{to(drop{}, tcp, matchPort{1}, matchOpening{}), to(drop{})}},
		{"nat", []rule{to(leave{}, matchUID{uid: 1}, matchGID{gid: 1}), to(redirect{1}, udp, matchPort{53}), to(redirect{1}, tcp, matchPort{53})}},
	})
}

// probed reads the chains back: gVisor takes some matches and forgets them.
func (r *reducedXT) probed(ctx context.Context, f family, tables []xtTable) error {
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
