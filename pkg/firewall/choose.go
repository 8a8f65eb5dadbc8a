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
// xtables. "xtables" and "xtables-legacy" are the same.
func Backends() []string {
	return []string{"auto", "nftables", "xtables", xtables.Name}
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
	why := "it was asked for"
	if nftErr != nil {
		why = strings.ReplaceAll(nftErr.Error(), "\n", " ")
	}
	if err := nfnetlink.Supported(); err != nil { // such a kernel holds nothing of another backend
		r, openErr := xtables.OpenReduced(opts.programs())
		if openErr != nil {
			return nil, errors.Join(nftErr, openErr)
		}
		return &Firewall{Backend: xtables.Name, Why: fmt.Sprintf("%s: the kernel takes nothing else: %v", r.Programs(), err), Reduced: r.Reason, be: r}, nil
	}
	x, err := xtables.Open(sealed, opts.programs())
	if err != nil {
		return nil, errors.Join(nftErr, err)
	}
	return &Firewall{Backend: xtables.Name, Why: x.Programs() + ": " + why, Zones: x.Zoned, be: x, clear: nft.Remove}, nil
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
