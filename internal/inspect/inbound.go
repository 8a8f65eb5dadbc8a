package inspect

import (
	"bufio"
	"context"
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
	r := inboundReport{Version: 1, Port: port, Listens: slices.Contains(listens, port)}
	r.Allowed = slices.Contains(inbound, port)
	switch {
	case r.Allowed && r.Listens:
		r.Reason = fmt.Sprintf("port %d listens and is in inbound", port)
	case r.Allowed:
		r.Reason = fmt.Sprintf("port %d is in inbound, and nothing listens on it", port)
	case r.Listens:
		r.Reason = fmt.Sprintf("port %d listens and is not in inbound", port)
	default:
		r.Reason = fmt.Sprintf("port %d is not in inbound, and nothing listens on it", port)
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

// listening are the TCP ports that sockets of uid accept connections on, from
// elsewhere than the loopback, in the form of /proc/net/tcp (proc_pid_net(5)).
func listening(uid uint32, files ...string) (ports []uint16) {
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			fields := strings.Fields(sc.Text())
			if len(fields) < 8 || fields[3] != "0A" || fields[7] != fmt.Sprint(uid) {
				continue
			}
			at, number, _ := strings.Cut(fields[1], ":")
			port, err := strconv.ParseUint(number, 16, 16)
			if err == nil && !loopbackHex(at) && !slices.Contains(ports, uint16(port)) {
				ports = append(ports, uint16(port))
			}
		}
		f.Close()
	}
	return ports
}

// isLittleEndian says how this machine orders the bytes of a word.
var isLittleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// loopbackHex reads an address as the kernel prints it: words of the machine's order.
func loopbackHex(s string) bool {
	b, err := hex.DecodeString(s)
	if err != nil || len(b)%4 != 0 {
		return false
	}
	for i := 0; i < len(b); i += 4 {
		if isLittleEndian {
			slices.Reverse(b[i : i+4])
		}
	}
	a, ok := netip.AddrFromSlice(b)
	return ok && a.Unmap().IsLoopback()
}

// listeningHere are those of the agent's.
func listeningHere(uid uint32) []uint16 {
	return listening(uid, "/proc/net/tcp", "/proc/net/tcp6")
}

// checkInbound looks for servers of the agent's that nobody outside reaches.
func checkInbound(_ context.Context, p patient) []finding {
	var out []finding
	for _, port := range p.listens {
		if r := explainInbound(port, p.inbound, p.listens); !r.Allowed {
			out = append(out, warn("inbound", fmt.Sprintf("if it is to be reached from outside, add inbound: [%d] to policy.yaml", port), "%s: connections from outside are refused", r.Reason)...)
		}
	}
	return out
}
