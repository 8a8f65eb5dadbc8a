package report

import (
	"net/netip"

	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/sockowner"
	"golang.org/x/sys/unix"
)

// connected takes in the connections that are open now: the log has no line of one before it ends. Of an address with
// several names, nobody knows which is meant: all are in use.
func (t *tally) connected(s *source) {
	if !s.live() {
		return
	}
	names := map[netip.Addr][]string{}
	for _, n := range s.leases {
		for _, a := range n.Addrs {
			names[a.Addr] = append(names[a.Addr], n.Name)
		}
	}
	for _, c := range connections() {
		port := policy.Port{Proto: policy.TCP, Number: c.Remote.Port()}
		if c.Proto == unix.IPPROTO_UDP {
			port.Proto = policy.UDP
		}
		addr := c.Remote.Addr().Unmap()
		t.inUse(t.policy.DecideAddr(addr, port))
		for _, name := range names[addr] {
			t.inUse(t.policy.Decide(name, port))
		}
	}
}

func (t *tally) inUse(d policy.Decision) {
	if d.Allowed && d.Rule != nil {
		t.open[d.Rule.Source.String()]++
	}
}

// connections are those of this network namespace, none if nobody says which there are.
func connections() []sockowner.Conn {
	var table sockowner.Table
	if f, err := sockowner.Open(); err == nil {
		defer f.Close()
		if sockowner.NewFinder(f).Read(&table) == nil {
			return table.Conns
		}
	}
	if table.ReadProc() != nil {
		return nil
	}
	return table.Conns
}
