package firewall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/nft"
	"github.com/agent-init/agent-init/pkg/firewall/internal/xtables"
)

// Backends returns the words that Options.Backend may be. "auto" is nftables if
// the kernel takes its rules, else xtables; "xtables" is the better variant of
// iptables of those that are installed.
func Backends() []string {
	return []string{"auto", "nftables", "xtables", "xtables-nft", "xtables-legacy"}
}

// choose opens the backend that opts ask for. It says why, and returns what
// removes the rules of every other backend.
func choose(ctx context.Context, opts Options) (be backend, why string, clear func() error, err error) {
	ctx = context.WithoutCancel(ctx) // clear is called long after
	word := opts.Backend
	if word == "" {
		word = "auto"
	}
	if !slices.Contains(Backends(), word) {
		return nil, "", nil, fmt.Errorf("there is no firewall backend %q: use one of %s", word, strings.Join(Backends(), ", "))
	}
	why = "it was asked for"
	var nftErr error
	if word == "auto" || word == "nftables" {
		left, err := xtables.Left() // before the probe, whose end would have to be waited for: see nfnetlink.Conn
		if err != nil {
			return nil, "", nil, err
		}
		n, err := nft.Open(opts.Owner, opts.logger())
		if err == nil {
			if word == "auto" {
				why = "the kernel takes its rules"
			}
			if left {
				clear = func() error { return xtables.Remove(ctx, opts.programs()) }
			}
			return n, why, clear, nil
		}
		if word == "nftables" || !errors.Is(err, nfnetlink.ErrUnsupported) {
			return nil, "", nil, err
		}
		nftErr = fmt.Errorf("nftables: %w", err)
	}
	if err := nfnetlink.Supported(); err != nil {
		r, why, err := xtables.OpenReduced(ctx, word, opts.programs(), err)
		if err != nil {
			return nil, "", nil, errors.Join(nftErr, err)
		}
		return r, why, nil, nil // such a kernel holds nothing of another backend
	}
	variant, _ := strings.CutPrefix(strings.TrimPrefix(word, "xtables"), "-")
	if word == "auto" {
		variant = ""
	}
	x, why, err := xtables.Open(ctx, xtables.Variant(variant), opts.programs())
	if err != nil {
		return nil, "", nil, errors.Join(nftErr, err)
	}
	if nftErr != nil {
		why += "; " + strings.ReplaceAll(nftErr.Error(), "\n", " ")
	}
	return x, why, func() error {
		if err := nft.Remove(); err != nil {
			return err
		}
		return x.RemoveOthers(ctx)
	}, nil
}

// Caveats says, in a sentence each, what the backend in use does less strictly
// than p wants it: with nftables, nothing on most kernels.
func (f *Firewall) Caveats(p Plan) []string {
	if f.reduced != "" {
		return f.be.Caveats(p)
	}
	var out []string
	if !f.Zones() {
		out = append(out, "the agent can have DNS questions get lost by sending from every port, since the kernel has no zones for connections (CONFIG_NF_CONNTRACK_ZONES, or xt_CT)")
	}
	return append(out, f.be.Caveats(p)...)
}
