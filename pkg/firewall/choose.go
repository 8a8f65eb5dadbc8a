package firewall

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/nft"
	"github.com/agent-init/agent-init/pkg/firewall/internal/xtables"
)

// Backends returns the words that Options.Backend may be. "auto" is nftables if the kernel takes its rules, else
// xtables; "xtables" is the better variant of iptables of those that are installed.
func Backends() []string {
	return []string{"auto", "nftables", "xtables", "xtables-nft", "xtables-legacy"}
}

func choose(opts Options) (*Firewall, error) {
	word := cmp.Or(opts.Backend, "auto")
	if !slices.Contains(Backends(), word) {
		return nil, fmt.Errorf("there is no firewall backend %q: use one of %s", word, strings.Join(Backends(), ", "))
	}
	var sealed *Plan
	if opts.Seal {
		p, err := sealedPlan(false, 0)
		if err != nil {
			return nil, err
		}
		sealed = &p
	}
	var nftErr error
	if word == "auto" || word == "nftables" {
		left, err := xtables.Left() // before the probe, whose end would have to be waited for: see nfnetlink.Conn
		if err != nil {
			return nil, err
		}
		n, err := nft.Open(opts.Owner, sealed, opts.Log)
		if err == nil {
			f := &Firewall{Backend: "nftables", Why: "it was asked for", Zones: n.Zoned, be: n, port: n.Port}
			if word == "auto" {
				f.Why = "the kernel takes its rules"
			}
			if left {
				f.clear = func() error { return xtables.Remove(opts.programs()) }
			}
			return f, nil
		}
		if word == "nftables" || !errors.Is(err, nfnetlink.ErrUnsupported) {
			return nil, err
		}
		nftErr = fmt.Errorf("nftables: %w", err)
	}
	_, variant, _ := strings.Cut(word, "-")
	if err := nfnetlink.Supported(); err != nil {
		r, err := xtables.OpenReduced(variant, opts.programs(), err)
		if err != nil {
			return nil, errors.Join(nftErr, err)
		}
		return &Firewall{Backend: r.Name, Why: r.Why, Reduced: r.Reason, be: r}, nil // such a kernel holds nothing of another backend
	}
	x, err := xtables.Open(variant, sealed, opts.programs())
	if err != nil {
		return nil, errors.Join(nftErr, err)
	}
	f := &Firewall{Backend: x.Name, Why: x.Why, Zones: x.Zoned, be: x}
	if nftErr != nil {
		f.Why += "; " + strings.ReplaceAll(nftErr.Error(), "\n", " ")
	}
	f.clear = func() error {
		if err := nft.Remove(); err != nil {
			return err
		}
		return x.RemoveOthers()
	}
	return f, nil
}

// Caveats says, in a sentence each, what the backend in use does less strictly
// than p wants it: with nftables, nothing on most kernels.
func (f *Firewall) Caveats(p Plan) (out []string) {
	if f.Reduced == "" && !f.Zones {
		out = append(out, "the agent can have DNS questions get lost by sending from every port, since the kernel has no zones for connections (CONFIG_NF_CONNTRACK_ZONES, or xt_CT)")
	}
	if f.Backend != "nftables" {
		out = append(out, xtables.Caveats(p)...)
	}
	return out
}
