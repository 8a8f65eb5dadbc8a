// Package xtables holds a plan in the tables of iptables-legacy and in kernel ipsets; and, where a kernel has nothing
// else, a reduced plan in those tables alone.
package xtables

import (
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// Name is what the backend is called.
const Name = "xtables-legacy"

// Backend takes more steps than nft: each table of each family is a transaction of its own, and the sets are none of
// any. So sets are filled before rules use them, and the tables that drop by default come first.
type Backend struct {
	Zoned bool // the kernel has zones

	tools xtTools
	uids  []uidRange
	log   *slog.Logger
	mark  xtMark
	room  map[string]int // of leases that surely fit, by set; see reserve
}

// xtFamilies is the order in which families get their rules.
func xtFamilies() []plan.Family { return []plan.Family{plan.IPv6, plan.IPv4} }

// Options say how programs are run.
type Options struct {
	Run      Runner
	LockFile string // what iptables locks where it can't make /run/xtables.lock
	Log      *slog.Logger
}

// Open opens the backend. Before it tries what the kernel takes, it seals, if sealed is not nil; what is sealed stays
// so.
func Open(sealed *plan.Plan, opts Options) (*Backend, error) {
	if err := rawSocket(); err != nil {
		return nil, err
	}
	uids, err := knownUIDs()
	if err != nil {
		return nil, fmt.Errorf("open xtables: %w", err)
	}
	tools, err := findTools(xtDirs(), lockFile(opts.LockFile), opts.Run)
	if err != nil {
		return nil, err
	}
	x := opened(tools, opts.Log)
	x.uids = uids
	if err := x.probe(sealed); err != nil {
		return nil, fmt.Errorf("probe iptables-legacy: %w", err)
	}
	return x, nil
}

func opened(t xtTools, log *slog.Logger) *Backend {
	return &Backend{tools: t, log: log, room: map[string]int{}}
}

// Programs says which programs the backend runs, for people.
func (x *Backend) Programs() string { return "iptables " + x.tools.version + " (legacy)" }

// rawSocket makes sure of the capability that iptables can't do without: it opens raw sockets to speak to the kernel.
func rawSocket() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err == nil {
		return unix.Close(fd)
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		err = nfnetlink.ErrRaw
	}
	return fmt.Errorf("open a raw socket: %w", err)
}

func (x *Backend) Close() error { return nil }

// byFamily is what get returns for each family.
func byFamily[T any](get func(plan.Family) (T, error)) (map[plan.Family]T, error) {
	out := map[plan.Family]T{}
	for _, f := range xtFamilies() {
		got, err := get(f)
		if err != nil {
			return nil, fmt.Errorf("IPv%d: %w", f, err)
		}
		out[f] = got
	}
	return out, nil
}

func (x *Backend) read() (map[plan.Family]xtLive, error) {
	return byFamily(func(f plan.Family) (xtLive, error) { return x.tools.read(f) })
}

func (x *Backend) render(p plan.Plan) (map[plan.Family][]xtTable, error) {
	return byFamily(func(f plan.Family) ([]xtTable, error) { return xtTables(p, f, x.uids) })
}

// Caveats says what a backend of this package does less strictly than p wants it, in a sentence each.
func Caveats(p plan.Plan) []string {
	if p.Reduced {
		return []string{
			"nothing but TCP is let through, all of it by way of the guard, which may accept a connection before it is refused",
			"packets that the rules refuse are not logged; what the guard refuses is",
		}
	}
	out := []string{"a root shell of the container has NET_RAW, and could send past the packet filter. With NET_ADMIN it could change the rules until the next comparison"}
	if s, err := p.Set("asked"); err == nil {
		out = append(out, fmt.Sprintf("for %v after each question of the guard to the container engine's DNS, root may send %d datagrams a second to port 53 of any IPv4 address; and what the engine asks over IPv6 is refused", s.Timeout, askedRate))
	}
	return out
}

// Left says whether there may be chains of the xtables backend: its sets show that.
func Left() (bool, error) {
	names, err := setNames(xtPrefix)
	if nfnetlink.Absent(err) {
		return false, nil
	}
	return len(names) > 0, nfnetlink.Explain("look for rules of the xtables backend", err)
}

// Remove removes the chains and sets of the xtables backend. A set that is still used after that is an error: by rules
// of an agent-init from before this one, over iptables on nf_tables.
func Remove(opts Options) error {
	tools, err := findTools(xtDirs(), lockFile(opts.LockFile), opts.Run)
	if err != nil {
		return fmt.Errorf("%w: %w", nfnetlink.ErrLeft, err)
	}
	return nfnetlink.Explain("remove rules of the xtables backend", opened(tools, opts.Log).remove())
}

func (x *Backend) remove() error {
	for _, f := range xtFamilies() {
		live, err := x.tools.readUsed(f)
		if err != nil {
			return err
		}
		if text := restoreText(nil, live, true); text != "" {
			if err := x.tools.load(f, text); err != nil {
				return err
			}
		}
	}
	if err := x.dropSets(plan.Plan{}); err != nil {
		return err
	}
	names, err := setNames(xtPrefix)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("%w: they use the set %s, and are not in the tables of iptables-legacy", nfnetlink.ErrLeft, names[0])
	}
	return err
}
