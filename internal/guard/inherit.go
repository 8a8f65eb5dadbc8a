package guard

import (
	"net"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
)

// inherited are the keeper's listening sockets.
type inherited struct {
	udp  []net.PacketConn
	tcp  []net.Listener
	gate []net.Listener
}

func inheritListeners(families int) (in inherited, err error) {
	for i := range families {
		fd := uintptr(fdListeners + stage.SocketsPerFamily*i)
		u, err := wire.Inherit(fd, net.FilePacketConn)
		if err != nil {
			return in, err
		}
		t, err := wire.Inherit(fd+1, net.FileListener)
		if err != nil {
			return in, err
		}
		g, err := wire.Inherit(fd+2, net.FileListener)
		if err != nil {
			return in, err
		}
		in.udp, in.tcp, in.gate = append(in.udp, u), append(in.tcp, t), append(in.gate, g)
	}
	return in, nil
}
