// Package nft holds a plan in nf_tables: one table, over netlink, each change of it one transaction.
package nft

import (
	"cmp"
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

// buffer is for the rules of a plan, which are one message, and for the kernel's answers, which are one for each. Where
// this process may not have so much, the kernel gives what its sysctls allow.
const buffer = 4 << 20

// Backend is the backend that speaks to nf_tables. Everything that it changes
// goes through one socket, so that the kernel can bind the table to it.
type Backend struct {
	Zoned bool   // the kernel has zones
	Port  uint32 // the netlink port that changes come from

	conn  *nftables.Conn
	sock  *netlink.Conn // of conn, for what its library can't say
	read  reader
	flags nftables.TableFlags // of the table, if we create it
	log   *slog.Logger
}

// Open connects, and asks the kernel to hold and drop what a plan needs in one transaction that changes nothing. It
// seals before that, if sealed is not nil: what is sealed stays so, whatever fails then.
func Open(owner bool, sealed *plan.Plan, log *slog.Logger) (*Backend, error) {
	n := &Backend{log: log}
	conn, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		n.sock = c
		return cmp.Or(c.SetWriteBuffer(buffer), c.SetReadBuffer(buffer))
	}))
	if err != nil {
		return nil, nfnetlink.Explain("open netfilter socket", err)
	}
	n.conn = conn
	if n.Port, err = conn.GetPortID(); err != nil {
		n.Close()
		return nil, nfnetlink.Explain("open netfilter socket", err)
	}
	if owner {
		// Without the second flag the table would end with our files, which
		// is before the kernel ends the other processes of our pid namespace.
		n.flags = nftables.TableFlagOwner | nftables.TableFlagPersist
	}
	first := n.probe
	if sealed != nil {
		first = func() error { return lacking(n.Seal(*sealed)) }
	}
	err = first()
	if owner && (errors.Is(err, nfnetlink.ErrUnsupported) || errors.Is(err, unix.EINVAL)) {
		n.flags = 0
		if err = first(); err == nil {
			log.Info("the kernel can't bind the table to its owner and keep it: others with NET_ADMIN could change it")
		}
	}
	if err == nil && sealed != nil {
		err = n.probe()
	}
	if err != nil {
		n.Close()
		return nil, err
	}
	n.Zoned = n.probeZone()
	return n, nil
}

// probe adds a table with one of everything that plans are made of, to chains where
// no packet comes, and deletes it in the same transaction.
func (n *Backend) probe() error {
	p, err := plan.Probe("p-", false)
	if err != nil {
		return err
	}
	for i := range p.Chains {
		p.Chains[i].Hook = ""
	}
	t := n.probeTable()
	n.conn.AddTable(t)
	if err := n.queue(t, p, nil); err != nil {
		return err
	}
	n.conn.DelTable(t)
	return nfnetlink.Explain("probe nf_tables", lacking(n.conn.Flush()))
}

// lacking explains the error of a transaction that tries what a kernel may lack.
func lacking(err error) error {
	if errors.Is(err, unix.ENOENT) { // an expression
		return fmt.Errorf("%w: the kernel needs nf_tables with ct, exthdr, fib, log, limit, redir and reject for inet: %w", nfnetlink.ErrUnsupported, err)
	}
	return err
}

func (n *Backend) Close() error {
	n.read.Close()
	return n.conn.CloseLasting()
}

func (n *Backend) probeTable() *nftables.Table {
	t := n.handle()
	t.Name += ".probe"
	return t
}

func (n *Backend) handle() *nftables.Table {
	return &nftables.Table{Name: plan.TableName, Family: nftables.TableFamilyINet, Flags: n.flags}
}

// claim returns our table, nil for none, and makes sure that we may change it. It says
// whether its flags are the ones that we would give it.
func (n *Backend) claim() (live *liveTable, same bool, err error) {
	live, err = n.read.table()
	if nfnetlink.Absent(err) {
		err = fmt.Errorf("%w: the kernel has no nf_tables: %w", nfnetlink.ErrUnsupported, err)
	}
	if err != nil || live == nil {
		return nil, false, err
	}
	switch flags := nftables.TableFlags(live.flags); {
	case flags&nftables.TableFlagOwner != 0 && live.owner != n.Port:
		err = fmt.Errorf("claim the table: another process (netlink port %d) holds the rules of this network namespace", live.owner)
	case flags&^nftables.TableFlagPersist == n.flags&^nftables.TableFlagPersist:
		same = true
	case flags == nftables.TableFlagPersist: // left by an owner that ended
		n.conn.AddTable(n.handle())
		same, err = true, nfnetlink.Explain("adopt the table", n.conn.Flush())
	}
	return live, same, err
}

// Remove removes the table of the nftables backend, if there is one.
func Remove() error {
	var read reader
	defer read.Close()
	live, err := read.table()
	if nfnetlink.Absent(err) || err == nil && live == nil {
		return nil
	}
	if err != nil {
		return nfnetlink.Explain("look for rules of the nftables backend", err)
	}
	if nftables.TableFlags(live.flags)&nftables.TableFlagOwner != 0 {
		return fmt.Errorf("remove rules of the nftables backend: another process (netlink port %d) holds them", live.owner)
	}
	conn, err := nftables.New()
	if err != nil {
		return nfnetlink.Explain("remove rules of the nftables backend", err)
	}
	conn.DelTable(&nftables.Table{Name: plan.TableName, Family: nftables.TableFamilyINet})
	return nfnetlink.Explain("remove rules of the nftables backend", conn.Flush())
}
