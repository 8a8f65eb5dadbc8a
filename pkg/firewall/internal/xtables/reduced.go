package xtables

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// reducedXT is the backend of a kernel that has nothing but the tables of iptables-legacy, and those in part: gVisor's.
// It holds reduced plans only. Leases are no matter of its rules: whoever makes connections has to look them up.
type reducedXT struct {
	*Backend
	Reason string                     // why plans must be reduced, for people only: nothing depends on it
	loaded map[string]string          // what the tables held right after they were loaded; see xtEntries
	book   map[plan.Element]time.Time // leases, and when they end
}

// reducedTables are the tables that gVisor has rules in. It doesn't list them.
func reducedTables() []string { return []string{"filter", "raw", "nat"} }

// hiddenOwner is what iptables shows of a uid that gVisor tells it in a form of long ago.
const hiddenOwner = "owner [unsupported revision]"

// OpenReduced opens the backend.
func OpenReduced(opts Options) (*reducedXT, error) {
	if err := rawSocket(); err != nil {
		return nil, err
	}
	t, err := findTools(xtDirs(), lockFile(opts.LockFile), opts.Run)
	if err != nil {
		return nil, err
	}
	t.tables = reducedTables()
	r := &reducedXT{Backend: opened(t, opts.Log), Reason: reducedReason(), book: map[plan.Element]time.Time{}}
	if err := r.probe(); err != nil {
		return nil, err
	}
	return r, nil
}

func reducedReason() string {
	var u unix.Utsname
	if unix.Uname(&u) == nil && strings.Contains(unix.ByteSliceToString(u.Release[:]), "gvisor") {
		return "gVisor"
	}
	return "no nfnetlink"
}

func (r *reducedXT) Apply(p, _ plan.Plan) error {
	if !p.Reduced {
		return errors.New("this kernel can hold reduced plans only (Config.Reduced)")
	}
	if r.mark.text == p.String() && r.Verify(p) == nil {
		return nil
	}
	if err := r.put(p); err != nil {
		return nfnetlink.Explain("apply", err)
	}
	loaded, err := r.entries()
	r.loaded = loaded
	return nfnetlink.Explain("apply", err)
}

// Verify: what iptables can't show is compared with what was there right after the plan was loaded.
func (r *reducedXT) Verify(p plan.Plan) error {
	if err := r.Backend.Verify(p); err != nil {
		return err
	}
	now, err := r.entries()
	if err != nil {
		return nfnetlink.Explain("verify", err)
	}
	for _, at := range slices.Sorted(maps.Keys(now)) {
		if now[at] != r.loaded[at] {
			return plan.Diff{at + " has rules for other uids or groups"}.Err()
		}
	}
	return nil
}

func (r *reducedXT) entries() (map[string]string, error) {
	out := map[string]string{}
	for _, f := range xtFamilies() {
		for _, name := range reducedTables() {
			at := fmt.Sprintf("IPv%d: table %s", f, name)
			es, err := xtEntries(f, name)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", at, err)
			}
			out[at] = es
		}
	}
	return out, nil
}

func (r *reducedXT) Lease(ls []plan.Lease) error {
	now := time.Now()
	maps.DeleteFunc(r.book, func(_ plan.Element, end time.Time) bool { return !end.After(now) })
	for _, l := range ls {
		r.book[l.Element] = now.Add(max(l.TTL, time.Second))
	}
	return nil
}

func (r *reducedXT) Unlease(es []plan.Element) error {
	for _, e := range es {
		delete(r.book, e)
	}
	return nil
}

func (r *reducedXT) Empty([]plan.Set) error {
	clear(r.book)
	return nil
}

// Held returns the leases; nothing else is held: the guard asks about each connection, and ends its own.
func (r *reducedXT) Held(set plan.Set, each func(plan.Lease)) error {
	now := time.Now()
	for e, end := range r.book {
		if end.After(now) && set.Name == plan.FamilyOf(e.Addr).Leases(e.For).Name {
			each(plan.Lease{Element: e, TTL: end.Sub(now)})
		}
	}
	return nil
}

// probe loads, into chains where no packet comes, one of everything that reduced
// plans are made of, reads it back and removes it.
func (r *reducedXT) probe() error {
	p, err := plan.Probe(probePrefix, true)
	if err != nil {
		return err
	}
	for _, f := range xtFamilies() {
		tables, err := probeTables(p, f, nil)
		if err != nil {
			return err
		}
		err = r.tools.load(f, restoreText(tables, nil, false))
		if err == nil { // gVisor takes some matches and forgets them
			var live xtLive
			if live, err = r.tools.read(f); err == nil {
				_, err = asLoaded(tables, live)
			}
		}
		if err = cmp.Or(err, r.dropProbeChains(f)); err != nil {
			return fmt.Errorf("probe iptables-legacy (inside gVisor it needs runsc --net-raw, of 2026 or later): %w: IPv%d: %w", nfnetlink.ErrUnsupported, f, err)
		}
	}
	return nil
}

// From linux/netfilter_ipv4/ip_tables.h and its like for IPv6, whose numbers are the same.
const (
	soGetInfo    = 64 // IPT_SO_GET_INFO
	soGetEntries = 65 // IPT_SO_GET_ENTRIES

	getInfoSize    = 84 // struct ipt_getinfo, with the size of the entries at its end
	getEntriesSize = 40 // struct ipt_get_entries, without them
	countersSize   = 16 // struct xt_counters

	maxEntries = 64 << 20 // bytes
)

// xtEntries returns the rules of a table as the kernel has them, in its own form, with their counters set to 0. Where
// iptables can't read a match, its bytes still show whether anyone has changed it.
func xtEntries(f plan.Family, table string) (string, error) {
	domain, level := unix.AF_INET, unix.SOL_IP
	if f == plan.IPv6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	info := make([]byte, getInfoSize)
	copy(info, table)
	if err := getsockopt(fd, level, soGetInfo, info); err != nil {
		return "", err
	}
	size := binary.NativeEndian.Uint32(info[getInfoSize-4:])
	if size > maxEntries {
		return "", fmt.Errorf("%d bytes of rules", size)
	}
	b := make([]byte, getEntriesSize+int(size))
	copy(b, table)
	binary.NativeEndian.PutUint32(b[32:], size)
	if err := getsockopt(fd, level, soGetEntries, b); err != nil {
		return "", err // EAGAIN if the table has changed in between
	}
	return withoutCounters(f, b[getEntriesSize:])
}

// withoutCounters clears the counters of each struct ipt_entry, or ip6t_entry.
func withoutCounters(f plan.Family, b []byte) (string, error) {
	next, counters := 90, 96 // offsets in ipt_entry
	if f == plan.IPv6 {
		next, counters = 142, 152
	}
	for at := 0; at < len(b); {
		if len(b)-at < counters+countersSize {
			return "", errors.New("a rule is cut short")
		}
		clear(b[at+counters : at+counters+countersSize])
		n := int(binary.NativeEndian.Uint16(b[at+next:]))
		if n < counters+countersSize {
			return "", fmt.Errorf("a rule has %d bytes", n)
		}
		at += n
	}
	return string(b), nil
}

func getsockopt(fd, level, name int, b []byte) error {
	n := uint32(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&n)), 0)
	runtime.KeepAlive(b)
	if errno != 0 {
		return errno
	}
	if int(n) != len(b) {
		return fmt.Errorf("getsockopt returned %d bytes, not %d", n, len(b))
	}
	return nil
}
