package resolver

import (
	"errors"
	"math/rand/v2"
	"net"
	"syscall"
)

const (
	firstPort = 10000   // below are those that programs commonly listen on
	minPorts  = 1 << 14 // from so many a choice is as hard to guess as it should be
)

// sourcePorts are the ports that questions leave from: those that the kernel gives to
// nobody by itself. Other programs ask the same servers, and are redirected to this one.
// On the same port, connection tracking would take what the one sends for part of the
// other's flow: ours would come back to ourselves, and theirs go where only ours may.
type sourcePorts struct {
	low, high uint16 // the kernel's own range, left out; zero: leave all to the kernel
}

// pick returns a random port, or 0 to leave it to the kernel.
func (p sourcePorts) pick() int {
	below, above := max(0, int(p.low)-firstPort), 65535-int(p.high)
	if p.high == 0 || p.low > p.high || below+above < minPorts {
		return 0
	}
	n := rand.IntN(below + above)
	if n < below {
		return firstPort + n
	}
	return int(p.high) + 1 + n - below
}

// dial returns a UDP socket that talks to addr only.
func (p sourcePorts) dial(addr *net.UDPAddr) (*net.UDPConn, error) {
	for range 8 {
		port := p.pick()
		if port == 0 {
			break
		}
		c, err := net.DialUDP("udp", &net.UDPAddr{Port: port}, addr)
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EACCES) {
			return c, err
		}
	}
	return net.DialUDP("udp", nil, addr)
}
