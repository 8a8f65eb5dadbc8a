package audit

import "net/netip"

// Process is who caused an event, for a person to read: PID and Comm are what its
// own side says, and 0 and "" if nothing is known.
type Process struct {
	UID  uint32 // the kernel's word
	PID  int
	Comm string
}

// Finder says who sends from local to remote over a network, which is "tcp" or
// "udp". For UDP, remote may be zero. It takes some milliseconds at most, and
// returns nil if it can't tell.
type Finder func(network string, local, remote netip.AddrPort) *Process

// Nobody is a Finder that finds nobody.
func Nobody(string, netip.AddrPort, netip.AddrPort) *Process { return nil }

// By returns e as caused by p, which may be nil.
func (e Event) By(p *Process) Event {
	if p != nil {
		e.UID, e.PID, e.Comm = &p.UID, p.PID, p.Comm
	}
	return e
}
