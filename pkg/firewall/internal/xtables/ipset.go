package xtables

import (
	"errors"
	"fmt"
	"slices"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// ipset is the definition of a set of ipset(8). Its revision of the type is
// named, not left to anyone's default: an older one drops options in silence.
type ipset struct {
	name   string
	typ    string // one of the types below
	family plan.Family
	timed  bool // entries may expire
	max    uint32
}

const (
	hashIPPort  = "hash:ip,port"
	hashNetPort = "hash:net,port"
	hashNet     = "hash:net"
)

func ipsetTypes() []string { return []string{hashIPPort, hashNetPort, hashNet} }

// revision returns the revision of a type that Linux has known since 3.18.
func revision(typ string) uint8 {
	switch typ {
	case hashIPPort:
		return 5
	case hashNetPort:
		return 7
	}
	return 6
}

// ipsetNameMax is the longest name that a set can have: IPSET_MAXNAMELEN of
// ip_set.h, less the zero at its end.
const ipsetNameMax = 31

// fallbackTTL is how long an entry stays, in seconds, that somebody adds to a
// set of leases without saying.
const fallbackTTL = 60

// ipsets speaks to the kernel's sets; nil stands for a kernel that has none. It
// does so over two sockets that it keeps: the handle
// makes and replaces sets, and conn carries many entries at once, which the
// handle's library can't.
type ipsets struct {
	handle *netlink.Handle
	conn   *mdlayher.Conn
}

func openIPSets() (*ipsets, error) {
	conn, err := mdlayher.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	// Else each refusal would carry the whole request.
	if err := conn.SetOption(mdlayher.CapAcknowledge, true); err != nil {
		conn.Close()
		return nil, err
	}
	handle, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err == nil {
		err = handle.SetSocketTimeout(nfnetlink.Timeout)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &ipsets{handle, conn}, nil
}

func (s *ipsets) close() error {
	if s == nil {
		return nil
	}
	s.handle.Close()
	return s.conn.Close()
}

// create makes an empty set. There must be none of that name.
func (s *ipsets) create(d ipset) error {
	o := netlink.IpsetCreateOptions{Family: d.family.Nfproto(), Revision: revision(d.typ), MaxElements: d.max}
	if d.timed {
		ttl := uint32(fallbackTTL)
		o.Timeout = &ttl
	}
	return ipsetError("create", d.name, safely(func() error { return s.handle.IpsetCreate(d.name, d.typ, o) }))
}

// destroy removes a set. One that rules still use is refused, and one that
// isn't there is fine.
func (s *ipsets) destroy(name string) error {
	err := safely(func() error { return s.handle.IpsetDestroy(name) })
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return ipsetError("destroy", name, err)
}

// flush empties a set.
func (s *ipsets) flush(name string) error {
	return ipsetError("empty", name, safely(func() error { return s.handle.IpsetFlush(name) }))
}

// swap exchanges two sets of one type and family in one step, definitions and
// entries, for the rules that use them.
func (s *ipsets) swap(a, b string) error {
	return ipsetError("replace", b, safely(func() error { return s.handle.IpsetSwap(a, b) }))
}

// safely calls f, which is the library's. That takes every error to be of one
// type, and would end PID 1 over one that isn't.
func safely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("netlink: %v", p)
		}
	}()
	return f()
}

// ipsetError says what was being done to which set, and gives the kernel's own
// numbers their words.
func ipsetError(doing, name string, err error) error {
	if err == nil {
		return nil
	}
	var errno unix.Errno
	if errors.As(err, &errno) && errno >= nl.IPSET_ERR_PRIVATE {
		err = nl.IPSetError(errno)
		if errno == hashFull {
			err = errors.New("it is full")
		}
	}
	var own nl.IPSetError
	if errors.As(err, &own) && slices.Contains([]nl.IPSetError{nl.IPSET_ERR_FIND_TYPE, nl.IPSET_ERR_PROTOCOL}, own) {
		err = fmt.Errorf("%w: the kernel needs ip_set with hash:ip,port, hash:net,port and hash:net (Linux 3.18 or later): %w", nfnetlink.ErrUnsupported, err)
	}
	return fmt.Errorf("%s ipset %s: %w", doing, name, err)
}

// hashFull is IPSET_ERR_HASH_FULL of ip_set_hash.h.
const hashFull = unix.Errno(nl.IPSET_ERR_TYPE_SPECIFIC)
