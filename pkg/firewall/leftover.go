package firewall

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// removeNFT removes the table of the nftables backend, if there is one.
func removeNFT() error {
	read, err := openReader()
	if err != nil {
		return explain("look for rules of the nftables backend", err)
	}
	defer read.conn.Close()
	live, err := read.table(tableName)
	if absent(err) || err == nil && live == nil {
		return nil
	}
	if err != nil {
		return explain("look for rules of the nftables backend", err)
	}
	if nftables.TableFlags(live.flags)&nftables.TableFlagOwner != 0 {
		return fmt.Errorf("remove rules of the nftables backend: another process (netlink port %d) holds them", live.owner)
	}
	conn, err := nftables.New()
	if err != nil {
		return explain("remove rules of the nftables backend", err)
	}
	conn.DelTable(&nftables.Table{Name: tableName, Family: nftables.TableFamilyINet})
	return explain("remove rules of the nftables backend", conn.Flush())
}

// absent says whether err is that of a kernel without the part of netfilter that
// was spoken to (nfnetlink_rcv_msg).
func absent(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT)
}

// removeXT removes the chains and sets of the xtables backend, if there are any:
// the sets show that.
func removeXT(ctx context.Context, opts Options) error {
	sets, err := openIPSets()
	if err != nil {
		return explain("look for rules of the xtables backend", err)
	}
	defer sets.close()
	names, err := sets.names(xtPrefix)
	if absent(err) || err == nil && len(names) == 0 {
		return nil
	}
	if err != nil {
		return explain("look for rules of the xtables backend", err)
	}
	tools, err := findTools(ctx, xtDirs(), "", lockFile(opts.LockFile), opts.Run)
	if err != nil {
		return fmt.Errorf("rules of the xtables backend are there, and can't be removed: %w", err)
	}
	if err := removeChains(ctx, tools); err != nil {
		return err
	}
	x := xt{sets: sets, log: opts.logger()}
	return explain("remove rules of the xtables backend", x.dropSets(Plan{}))
}

// removeChains removes our chains from the tables of variants of iptables.
func removeChains(ctx context.Context, variants []xtTools) error {
	for _, t := range variants {
		for _, f := range xtFamilies() {
			live, err := t.readUsed(ctx, f)
			if err != nil {
				return explain("look for rules of the xtables backend", err)
			}
			if text := removeText(live); text != "" {
				if err := t.load(ctx, f, text); err != nil {
					return explain("remove rules of the xtables backend", err)
				}
			}
		}
	}
	return nil
}
