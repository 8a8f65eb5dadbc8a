package firewall

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// chunk is the most elements that one transaction carries. A transaction is
// one message, and the kernel bounds those by the socket's buffer.
const chunk = 1000

// nft is the backend that speaks to nf_tables. Everything that it changes
// goes through one socket, so that the kernel can bind the table to it.
type nft struct {
	conn  *nftables.Conn
	sock  *netlink.Conn // of conn, for what its library can't say
	read  *nftReader
	zoned bool                // the kernel has zones
	flags nftables.TableFlags // of the table, if we create it
	log   *slog.Logger
}

// openNFT connects, and asks the kernel to hold and drop what a plan needs in
// one transaction that changes nothing.
func openNFT(owner bool, log *slog.Logger) (*nft, error) {
	n := &nft{log: log}
	conn, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		n.sock = c
		return nil
	}))
	if err != nil {
		return nil, explain("open netfilter socket", err)
	}
	n.conn = conn
	if n.read, err = openReader(); err != nil {
		n.close()
		return nil, explain("open netfilter socket", err)
	}
	if owner {
		// Without the second flag the table would end with our files, which
		// is before the kernel ends the other processes of our pid namespace.
		n.flags = nftables.TableFlagOwner | nftables.TableFlagPersist
		if err := n.probe(); err == nil {
			n.zoned = n.probeZone()
			return n, nil
		} else if !errors.Is(err, ErrUnsupported) && !errors.Is(err, unix.EINVAL) {
			n.close()
			return nil, err
		}
		log.Info("the kernel can't bind the table to its owner and keep it: others with NET_ADMIN could change it")
		n.flags = 0
	}
	if err := n.probe(); err != nil {
		n.close()
		return nil, err
	}
	n.zoned = n.probeZone()
	return n, nil
}

// probe adds a table with one of everything that rules are made of, to a
// chain where no packet comes, and deletes it in the same transaction.
func (n *nft) probe() error {
	t := &nftables.Table{Name: tableName + "-probe", Family: nftables.TableFamilyINet, Flags: n.flags}
	sets := map[string]set{
		"s": {name: "s", family: ipv6, kind: static},
		"m": {name: "m", family: ipv4, kind: meter},
		"l": {name: "l", family: ipv6, kind: living},
	}
	n.conn.AddTable(t)
	c := n.conn.AddChain(&nftables.Chain{Name: "probe", Table: t})
	for _, name := range []string{"l", "m", "s"} {
		ns, err := nftSet(t, sets[name])
		if err == nil {
			err = n.conn.AddSet(ns, nil)
		}
		if err != nil {
			return err
		}
	}
	for _, r := range []rule{
		to(count{}, matchDst{single(engineDNS())}, matchUID{uid: 1}, matchGID{gid: 1}, matchForeign{}, matchRouted{}, matchState{stateNew}, matchSet{set: "s"}),
		to(keep{"l"}, matchReply{}), to(log{1, "m", true, logPrefix}), to(reset{}, matchProto{proto: protoTCP}), to(prohibit{}),
	} {
		es, err := compile(r, sets)
		if err != nil {
			return err
		}
		n.conn.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: es})
	}
	n.conn.DelTable(t)
	err := n.conn.Flush()
	if errors.Is(err, unix.ENOENT) { // an expression that this kernel lacks
		return fmt.Errorf("probe nf_tables: %w: the kernel needs nf_tables with ct, exthdr, fib, log, limit and reject for inet: %w", ErrUnsupported, err)
	}
	return explain("probe nf_tables", err)
}

func (n *nft) name() string { return "nftables" }

func (n *nft) zones() bool { return n.zoned }

func (n *nft) close() error {
	err := n.conn.CloseLasting()
	if n.read != nil {
		err = errors.Join(err, n.read.conn.Close())
	}
	return err
}

func (n *nft) portID() (uint32, error) { return n.conn.GetPortID() }

func (n *nft) handle() *nftables.Table {
	return &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet, Flags: n.flags}
}

// claim makes sure that we may change the live table, and says whether its
// flags are the ones that we would give it.
func (n *nft) claim(live *liveTable) (bool, error) {
	id, err := n.portID()
	if err != nil {
		return false, explain("claim the table", err)
	}
	switch flags := nftables.TableFlags(live.flags); {
	case flags&nftables.TableFlagOwner != 0 && live.owner != id:
		return false, fmt.Errorf("claim the table: another process (netlink port %d) holds the rules of this network namespace", live.owner)
	case flags&^nftables.TableFlagPersist == n.flags&^nftables.TableFlagPersist:
		return true, nil
	case flags == nftables.TableFlagPersist: // left by an owner that ended
		n.conn.AddTable(n.handle())
		return true, explain("adopt the table", n.conn.Flush())
	}
	return false, nil
}
