package nft

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// chunk is the most elements that one transaction carries. A transaction is
// one message, and the kernel bounds those by the socket's buffer.
const chunk = 1000

// Backend is the backend that speaks to nf_tables. Everything that it changes
// goes through one socket, so that the kernel can bind the table to it.
type Backend struct {
	conn  *nftables.Conn
	sock  *netlink.Conn // of conn, for what its library can't say
	read  *nftReader
	zoned bool                // the kernel has zones
	flags nftables.TableFlags // of the table, if we create it
	log   *slog.Logger
}

// Open connects, and asks the kernel to hold and drop what a plan needs in
// one transaction that changes nothing.
func Open(owner bool, log *slog.Logger) (*Backend, error) {
	n := &Backend{log: log}
	conn, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		n.sock = c
		return nil
	}))
	if err != nil {
		return nil, nfnetlink.Explain("open netfilter socket", err)
	}
	n.conn = conn
	if n.read, err = openReader(); err != nil {
		n.Close()
		return nil, nfnetlink.Explain("open netfilter socket", err)
	}
	if owner {
		// Without the second flag the table would end with our files, which
		// is before the kernel ends the other processes of our pid namespace.
		n.flags = nftables.TableFlagOwner | nftables.TableFlagPersist
		if err := n.probe(); err == nil {
			n.zoned = n.probeZone()
			return n, nil
		} else if !errors.Is(err, nfnetlink.ErrUnsupported) && !errors.Is(err, unix.EINVAL) {
			n.Close()
			return nil, err
		}
		log.Info("the kernel can't bind the table to its owner and keep it: others with NET_ADMIN could change it")
		n.flags = 0
	}
	if err := n.probe(); err != nil {
		n.Close()
		return nil, err
	}
	n.zoned = n.probeZone()
	return n, nil
}

// probe adds a table with one of everything that rules are made of, to a
// chain where no packet comes, and deletes it in the same transaction.
func (n *Backend) probe() error {
	t := &nftables.Table{Name: plan.TableName + "-probe", Family: nftables.TableFamilyINet, Flags: n.flags}
	sets := map[string]plan.Set{
		"s": {Name: "s", Family: plan.IPv6, Kind: plan.Static},
		"m": {Name: "m", Family: plan.IPv4, Kind: plan.Meter},
		"l": {Name: "l", Family: plan.IPv6, Kind: plan.Living},
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
	for _, r := range []plan.Rule{
		plan.To(plan.Count{}, plan.MatchDst{P: plan.Single(plan.EngineDNS())}, plan.MatchUID{UID: 1}, plan.MatchGID{GID: 1}, plan.MatchForeign{}, plan.MatchRouted{}, plan.MatchState{State: plan.StateNew}, plan.MatchSet{Set: "s"}),
		plan.To(plan.Keep{Set: "l"}, plan.MatchReply{}), plan.To(plan.Log{Group: 1, Set: "m", Ports: true, Text: plan.LogPrefix}), plan.To(plan.Reset{}, plan.MatchProto{Proto: plan.ProtoTCP}), plan.To(plan.Prohibit{}),
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
		return fmt.Errorf("probe nf_tables: %w: the kernel needs nf_tables with ct, exthdr, fib, log, limit and reject for inet: %w", nfnetlink.ErrUnsupported, err)
	}
	return nfnetlink.Explain("probe nf_tables", err)
}

// Name implements backend.
func (n *Backend) Name() string { return "nftables" }

// Zones implements backend.
func (n *Backend) Zones() bool { return n.zoned }

// Caveats implements backend.
func (n *Backend) Caveats(plan.Plan) []string { return nil }

// Reduced implements backend.
func (n *Backend) Reduced() string { return "" }

// Close implements backend.
func (n *Backend) Close() error {
	err := n.conn.CloseLasting()
	if n.read != nil {
		err = errors.Join(err, n.read.conn.Close())
	}
	return err
}

// PortID implements backend.
func (n *Backend) PortID() (uint32, error) { return n.conn.GetPortID() }

func (n *Backend) handle() *nftables.Table {
	return &nftables.Table{Name: plan.TableName, Family: nftables.TableFamilyINet, Flags: n.flags}
}

// claim makes sure that we may change the live table, and says whether its
// flags are the ones that we would give it.
func (n *Backend) claim(live *liveTable) (bool, error) {
	id, err := n.PortID()
	if err != nil {
		return false, nfnetlink.Explain("claim the table", err)
	}
	switch flags := nftables.TableFlags(live.flags); {
	case flags&nftables.TableFlagOwner != 0 && live.owner != id:
		return false, fmt.Errorf("claim the table: another process (netlink port %d) holds the rules of this network namespace", live.owner)
	case flags&^nftables.TableFlagPersist == n.flags&^nftables.TableFlagPersist:
		return true, nil
	case flags == nftables.TableFlagPersist: // left by an owner that ended
		n.conn.AddTable(n.handle())
		return true, nfnetlink.Explain("adopt the table", n.conn.Flush())
	}
	return false, nil
}
