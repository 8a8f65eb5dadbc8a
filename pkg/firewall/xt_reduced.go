package firewall

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// reducedXT is the backend of a kernel that has nothing but the tables of
// iptables-legacy, and those in part: gVisor's. It holds reduced plans only.
// Leases are no matter of its rules: whoever makes connections has to look them up.
type reducedXT struct {
	*xt
	reason string
	loaded map[family]map[string]string // what the tables held right after they were loaded; see xtEntries
	book   map[Element]time.Time        // leases, and when they end
}

// reducedTables are the tables that gVisor has rules in. It doesn't list them.
func reducedTables() []string { return []string{"filter", "raw", "nat"} }

// hiddenOwner is what iptables shows of a uid that gVisor tells it in a form of
// long ago.
const hiddenOwner = "owner [unsupported revision]"

// nfnetlink returns the error of a kernel that can't be spoken to about
// netfilter: no nf_tables, no ipsets, no conntrack, no log.
func nfnetlink() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return err
	}
	if err == nil {
		unix.Close(fd)
	}
	return nil // any other error comes again, from whoever needs the socket
}

// openReduced opens the backend that word asks for. cause is the error of nfnetlink.
func openReduced(ctx context.Context, word string, opts Options, cause error) (*reducedXT, string, error) {
	if word == "xtables-nft" {
		return nil, "", fmt.Errorf("iptables-nft: %w: the kernel has no nf_tables: %w", ErrUnsupported, cause)
	}
	if err := rawSocket(); err != nil {
		return nil, "", err
	}
	tools, err := findTools(ctx, xtDirs(), xtLegacy, lockFile(opts.LockFile), opts.Run)
	if err != nil {
		return nil, "", err
	}
	t := tools[slices.IndexFunc(tools, func(t xtTools) bool { return t.variant == xtLegacy })]
	t.tables = reducedTables()
	r := &reducedXT{xt: &xt{tools: t, log: opts.logger()}, reason: reducedReason(), book: map[Element]time.Time{}}
	if err := r.probe(ctx); err != nil {
		return nil, "", err
	}
	return r, fmt.Sprintf("iptables %s (%s): the kernel takes nothing else: %v", t.version, t.variant, cause), nil
}

// reducedReason is for people only: nothing depends on it.
func reducedReason() string {
	var u unix.Utsname
	if unix.Uname(&u) == nil && strings.Contains(unix.ByteSliceToString(u.Release[:]), "gvisor") {
		return "gVisor"
	}
	return "no nfnetlink"
}

// reducedCaveats are those of every reduced plan.
func reducedCaveats() []string {
	return []string{
		"nothing but TCP is let through, all of it by way of the guard, which may accept a connection before it is refused",
		"packets that the rules refuse are not logged; what the guard refuses is",
	}
}

// seal implements backend.
func (r *reducedXT) seal(sealed Plan) error {
	if !sealed.reduced {
		return errNotReduced
	}
	return r.xt.seal(sealed)
}

var errNotReduced = errors.New("this kernel can hold reduced plans only (Config.Reduced)")

// apply implements backend.
func (r *reducedXT) apply(p, _ Plan) error {
	if !p.reduced {
		return errNotReduced
	}
	if r.mark.text == p.String() && r.verify(p) == nil {
		return nil
	}
	if err := r.put(context.Background(), p); err != nil {
		return explain("apply", err)
	}
	loaded, err := r.entries()
	r.loaded = loaded
	return explain("apply", err)
}

// verify implements backend. What iptables can't show is compared with what was
// there right after the plan was loaded.
func (r *reducedXT) verify(p Plan) error {
	if err := r.xt.verify(p); err != nil {
		return err
	}
	now, err := r.entries()
	if err != nil {
		return explain("verify", err)
	}
	for _, f := range xtFamilies() {
		for _, name := range reducedTables() {
			if now[f][name] != r.loaded[f][name] {
				return differ([]string{fmt.Sprintf("IPv%d: table %s has rules for other uids or groups", f, name)})
			}
		}
	}
	return nil
}

func (r *reducedXT) entries() (map[family]map[string]string, error) {
	out := map[family]map[string]string{}
	for _, f := range xtFamilies() {
		out[f] = map[string]string{}
		for _, name := range reducedTables() {
			es, err := xtEntries(f, name)
			if err != nil {
				return nil, fmt.Errorf("read table %s of IPv%d: %w", name, f, err)
			}
			out[f][name] = es
		}
	}
	return out, nil
}

// lease implements backend.
func (r *reducedXT) lease(ls []Lease) error {
	now := time.Now()
	maps.DeleteFunc(r.book, func(_ Element, end time.Time) bool { return !end.After(now) })
	for _, l := range ls {
		r.book[l.Element] = now.Add(max(l.TTL, time.Second))
	}
	return nil
}

// unlease implements backend.
func (r *reducedXT) unlease(es []Element) error {
	for _, e := range es {
		delete(r.book, e)
	}
	return nil
}

// unleaseAll implements backend.
func (r *reducedXT) unleaseAll() error {
	clear(r.book)
	return nil
}

// leases implements backend.
func (r *reducedXT) leases() ([]Lease, error) {
	now := time.Now()
	var out []Lease
	for e, end := range r.book {
		if end.After(now) {
			out = append(out, Lease{e, end.Sub(now)})
		}
	}
	return out, nil
}

// kept implements backend. Nothing is: the guard asks about each connection, and ends
// its own.
func (r *reducedXT) kept() ([]Lease, error) { return nil, nil }

// guardFlows returns where the guard is connected to: nobody else is connected to
// anything outside.
func (f *Firewall) guardFlows(ctx context.Context) ([]Use, error) {
	var out []Use
	err := f.rules.do(ctx, func() error {
		if f.last == nil {
			return nil
		}
		es, err := connectionsOf(f.last.guard)
		for _, e := range es {
			out = append(out, Use{Element: e})
		}
		return explain("list flows", err)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
