package firewall

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// socketTables list the sockets of this network namespace, those of containers
// that share it included, whose processes can't be seen (proc_pid_net(5)).
var socketTables = [...]string{"tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "icmp", "icmp6", "raw", "raw6", "packet"}

const procNet = "/proc/self/net"

// SocketOwners returns the uids that own a socket of this network namespace.
func SocketOwners() (map[uint32]bool, error) { return socketOwners(procNet) }

func socketOwners(dir string) (map[uint32]bool, error) {
	out := map[uint32]bool{}
	err := eachSocket(dir, socketTables[:], func(s []string) error {
		uid, err := strconv.ParseUint(s[7], 10, 32)
		out[uint32(uid)] = true
		return err
	})
	return out, err
}

// connectionsOf returns where the established TCP connections of a uid go, according to the tables in dir, each once,
// but for those that stay here. It stands in for connection tracking where there is none to read.
func connectionsOf(dir string, uid uint32) (out []Element, err error) {
	err = eachSocket(dir, []string{"tcp", "tcp6"}, func(s []string) error {
		if s[3] != "01" || s[7] != fmt.Sprint(uid) { // TCP_ESTABLISHED
			return nil
		}
		local, lerr := parseProcAddr(s[1])
		remote, rerr := parseProcAddr(s[2])
		if !remote.Addr().IsLoopback() && !local.Addr().IsLoopback() && remote.Addr() != local.Addr() {
			out = append(out, Element{Addr: remote.Addr(), Proto: unix.IPPROTO_TCP, Port: remote.Port()})
		}
		return errors.Join(lerr, rerr)
	})
	slices.SortFunc(out, func(a, b Element) int { return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port)) })
	return slices.Compact(out), err
}

// ListeningPorts returns the TCP ports that sockets of uid accept connections on from
// elsewhere than the loopback, as far as the kernel tells.
func ListeningPorts(uid uint32) []uint16 { return listeningPorts(procNet, uid) }

func listeningPorts(dir string, uid uint32) (ports []uint16) {
	all, _ := listeners(dir, fmt.Sprint(uid))
	for _, at := range all {
		if !at.Addr().IsLoopback() && !slices.Contains(ports, at.Port()) {
			ports = append(ports, at.Port())
		}
	}
	return ports
}

// listeners returns the TCP addresses where something of uid's, or with "" of anybody's, listens,
// according to the tables in dir, but for the container engine's DNS.
func listeners(dir, uid string) (out []netip.AddrPort, err error) {
	err = eachSocket(dir, []string{"tcp", "tcp6"}, func(s []string) error {
		if s[3] != "0A" || uid != "" && s[7] != uid { // TCP_LISTEN
			return nil
		}
		ap, err := parseProcAddr(s[1])
		if ap.Addr() != plan.EngineDNS() {
			out = append(out, ap)
		}
		return err
	})
	return out, err
}

// eachSocket calls do with the fields of each line of tables in dir, until it fails. Missing ones are empty.
func eachSocket(dir string, tables []string, do func(fields []string) error) error {
	for _, table := range tables {
		data, err := os.ReadFile(filepath.Join(dir, table))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("list sockets: %w", err)
		}
		_, lines, _ := strings.Cut(string(data), "\n")
		for line := range strings.Lines(lines) {
			s := strings.Fields(line)
			if len(s) < 8 {
				return fmt.Errorf("list sockets: %s: %q", table, line)
			}
			if err := do(s); err != nil {
				return fmt.Errorf("list sockets: %s: %w", table, err)
			}
		}
	}
	return nil
}

// parseProcAddr parses an address as /proc/net/tcp has it: words of four
// bytes, each in the machine's order, and the port.
func parseProcAddr(s string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	p, perr := hex.DecodeString(port)
	if err != nil || perr != nil || len(p) != 2 || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", s)
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(p[0])<<8|uint16(p[1])), nil
}
