package main

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"
)

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
	Since   time.Time  `json:"since,omitzero"`
	Expires time.Time  `json:"expires,omitzero"`
}

// report is nil if there is nothing new.
func (l *ledger) report(before uint64) (*leasesReport, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes == before {
		return nil, before
	}
	type named struct {
		name  string
		lasts time.Time
	}
	all := make([]named, 0, len(l.names))
	for name, nl := range l.names {
		n := named{name: name}
		for _, al := range nl.addrs {
			if al.expires().After(n.lasts) {
				n.lasts = al.expires()
			}
		}
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b named) int {
		return cmp.Or(b.lasts.Compare(a.lasts), strings.Compare(a.name, b.name))
	})
	r := &leasesReport{Version: 1, Names: []nameLease{}}
	if n := len(all) - maxPublishedNames; n > 0 {
		all, r.More = all[:maxPublishedNames], n
	}
	for _, n := range all {
		lease := nameLease{Name: n.name}
		for _, al := range l.names[n.name].addrs {
			lease.Addrs = append(lease.Addrs, openLease{Addr: al.addr, On: portList(al.ports), Since: al.since, Expires: al.expires()})
		}
		slices.SortFunc(lease.Addrs, func(a, b openLease) int { return a.Addr.Compare(b.Addr) })
		r.Names = append(r.Names, lease)
	}
	return r, l.changes
}

func portList(ports []portLease) string {
	words := make([]string, len(ports))
	for i, p := range ports {
		words[i] = p.String()
	}
	return strings.Join(words, " ")
}
