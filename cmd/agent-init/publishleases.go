package main

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/pkg/policy"
)

// leasesFile says which addresses are open for which names, for explain.
const leasesFile = "leases.json"

// maxPublishedNames is how many names it holds, those that last longest.
const maxPublishedNames = 1000

type leasesReport struct {
	Version int         `json:"version"`
	Names   []nameLease `json:"names"`
	More    int         `json:"more,omitempty"` // names that are left out
}

type nameLease struct {
	Name  string      `json:"name"`
	Addrs []openLease `json:"addrs"`
}

type openLease struct {
	Addr    netip.Addr `json:"addr"`
	On      string     `json:"ports"` // 443/tcp 80/tcp
	Since   time.Time  `json:"since"`
	Expires time.Time  `json:"expires"`
}

// publishLeases writes the leases if anything about them has changed since the
// count of changes before, and returns the present count.
func (k *keeper) publishLeases(before uint64) uint64 {
	k.publishing.Lock()
	defer k.publishing.Unlock()
	r, now := k.ledger.report(before)
	if r == nil {
		return now
	}
	if err := k.dir.write(leasesFile, 0o644, r); err != nil {
		k.unpublished("the leases", err)
	}
	return now
}

// report is nil if there is nothing new.
func (l *ledger) report(before uint64) (*leasesReport, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes == before {
		return nil, before
	}
	r := &leasesReport{Version: 1, Names: make([]nameLease, 0, len(l.names))}
	for name, nl := range l.names {
		n := nameLease{Name: name}
		for a, al := range nl.addrs {
			n.Addrs = append(n.Addrs, openLease{Addr: a, On: portList(al.ports), Since: al.since, Expires: al.expires})
		}
		slices.SortFunc(n.Addrs, func(a, b openLease) int { return a.Addr.Compare(b.Addr) })
		r.Names = append(r.Names, n)
	}
	slices.SortFunc(r.Names, func(a, b nameLease) int {
		if c := b.lasts().Compare(a.lasts()); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	if n := len(r.Names) - maxPublishedNames; n > 0 {
		r.Names, r.More = r.Names[:maxPublishedNames], n
	}
	return r, l.changes
}

func (n nameLease) lasts() (t time.Time) {
	for _, a := range n.Addrs {
		if a.Expires.After(t) {
			t = a.Expires
		}
	}
	return t
}

func portList(ports []policy.Port) string {
	words := make([]string, len(ports))
	for i, p := range ports {
		words[i] = p.String()
	}
	return strings.Join(words, " ")
}
