package main

import (
	"net"
)

// inherited are the keeper's listening sockets.
type inherited struct {
	udp  []net.PacketConn
	tcp  []net.Listener
	gate []net.Listener
}

func inheritListeners(families int) (in inherited, err error) {
	for i := range families {
		fd := uintptr(fdListeners + socketsPerFamily*i)
		u, err := inherit(fd, net.FilePacketConn)
		if err != nil {
			return in, err
		}
		t, err := inherit(fd+1, net.FileListener)
		if err != nil {
			return in, err
		}
		g, err := inherit(fd+2, net.FileListener)
		if err != nil {
			return in, err
		}
		in.udp, in.tcp, in.gate = append(in.udp, u), append(in.tcp, t), append(in.gate, g)
	}
	return in, nil
}
