package inspect

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/internal/text"
)

// inboundReport is what explain says of a port of this container.
type inboundReport struct {
	Version int    `json:"version"`
	Port    uint16 `json:"port"`
	Allowed bool   `json:"allowed"` // from outside
	Listens bool   `json:"listens"`
	Reason  string `json:"reason"`

	dir string // of the policy
}

func explainInbound(port uint16, inbound []uint16, listens []uint16) inboundReport {
	r := inboundReport{Version: 1, Port: port, Allowed: slices.Contains(inbound, port), Listens: slices.Contains(listens, port)}
	in := "is not in inbound"
	if r.Allowed {
		in = "is in inbound"
	}
	r.Reason = fmt.Sprintf("port %d %s, and nothing listens on it", port, in)
	if r.Listens {
		r.Reason = fmt.Sprintf("port %d listens and %s", port, in)
	}
	return r
}

// Write shows it in the form of an explanation.
func (r inboundReport) Write(out io.Writer, _ bool) error {
	w := &text.Screen{W: out}
	verdict := "denied"
	if r.Allowed {
		verdict = "allowed"
	}
	w.Line("from outside to %d/tcp: %s, %s", r.Port, verdict, r.Reason)
	if !r.Allowed {
		w.Row("to allow it", "add this line to %s/policy.yaml:", r.dir)
		w.Line("  inbound: [%d]", r.Port)
	}
	return w.Err
}

var tcpTables = []string{"/proc/net/tcp", "/proc/net/tcp6"}

// listening are the TCP ports that sockets of uid accept connections on, from
// elsewhere than the loopback, by tables in the form of /proc/net/tcp (proc_pid_net(5)).
func listening(uid uint32, tables ...string) (ports []uint16) {
	for _, name := range tables {
		data, _ := os.ReadFile(name) // a kernel without IPv6 has one of them
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line)
			if len(fields) < 8 || fields[3] != "0A" || fields[7] != fmt.Sprint(uid) {
				continue
			}
			at, number, _ := strings.Cut(fields[1], ":")
			port, err := strconv.ParseUint(number, 16, 16)
			if err == nil && !loopbackHex(at) && !slices.Contains(ports, uint16(port)) {
				ports = append(ports, uint16(port))
			}
		}
	}
	return ports
}

// loopbackHex reads an address as the kernel prints it: words of the machine's order.
func loopbackHex(s string) bool {
	b, err := hex.DecodeString(s)
	for i := 0; err == nil && i+4 <= len(b); i += 4 {
		binary.BigEndian.PutUint32(b[i:], binary.NativeEndian.Uint32(b[i:]))
	}
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap().IsLoopback()
}
