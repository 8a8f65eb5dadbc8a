package firewall

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// initialNetNS is the inode of the machine's own network namespace, fixed
// since Linux 6.18; before, no namespace has it.
const initialNetNS = 4026531833

// tcpListen is TCP_LISTEN as /proc/net/tcp shows it.
const tcpListen = "0A"

// NamespaceOptions say what CheckNamespace should accept.
type NamespaceOptions struct {
	// Shared accepts that others listen in this network namespace, as in a
	// pod or a compose project. It never accepts the host's own.
	Shared bool
}

// CheckNamespace refuses, with ErrUnsupported, to work in a network namespace
// that isn't this container's own: the host's, or one that others live in.
// Rules there would confine the wrong processes. It reads only, and needs
// NET_ADMIN for some of it.
func CheckNamespace(opts NamespaceOptions) error {
	for _, check := range []func() (string, error){initialNamespace, bridges, engineChains} {
		seen, err := check()
		if err != nil {
			return explain("look at the network namespace", err)
		}
		if seen != "" {
			return fmt.Errorf("%w: this is not the container's own network: %s", ErrUnsupported, seen)
		}
	}
	if opts.Shared {
		return nil
	}
	seen, err := listeners("/proc/net/tcp", "/proc/net/tcp6")
	if err != nil {
		return fmt.Errorf("look at the network namespace: %w", err)
	}
	if len(seen) > 0 {
		return fmt.Errorf("%w: others use this network namespace already: something listens on %s", ErrUnsupported, seen[0])
	}
	return nil
}

// initialNamespace looks for what only the machine's own namespace has.
func initialNamespace() (string, error) {
	const sysctl = "/proc/sys/net/core/netdev_max_backlog"
	switch _, err := os.Stat(sysctl); {
	case err == nil:
		return sysctl + " exists", nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return "", err
	}
	if st.Ino == initialNetNS {
		return "it is the kernel's first", nil
	}
	return "", nil
}

// bridges looks for what connects other namespaces to each other.
func bridges() (string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return "", fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		if l.Type() == "bridge" {
			return "there is a bridge, " + l.Attrs().Name, nil
		}
	}
	return "", nil
}

// engineChains looks for the rules by which container engines route between
// other namespaces, made by nf_tables or by iptables on top of it.
func engineChains() (string, error) {
	if nfnetlink() != nil { // a sandbox's kernel of its own, which no engine routes by
		return "", nil
	}
	conn, err := mdlayher.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	msgs, err := exchange(conn, mdlayher.Message{
		Header: mdlayher.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETCHAIN, Flags: mdlayher.Request | mdlayher.Dump},
		Data:   []byte{unix.NFPROTO_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if absent(err) { // a kernel without nf_tables
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("list chains: %w", err)
	}
	for _, m := range msgs {
		if name := m.string(unix.NFTA_CHAIN_NAME); engineChain(name) {
			return "there is a rule chain of a container engine, " + name, nil
		}
	}
	return "", nil
}

// engineChain says whether only a host has a chain of that name. Docker puts
// DOCKER_OUTPUT and DOCKER_POSTROUTING into containers, for its DNS.
func engineChain(name string) bool {
	return name == "DOCKER" || slices.ContainsFunc([]string{"DOCKER-", "KUBE-", "CNI-", "NETAVARK"},
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// listeners returns the addresses in files like /proc/net/tcp where something
// listens, but for the container engine's DNS.
func listeners(files ...string) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for _, name := range files {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) { // the kernel has no IPv6
			continue
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		sc := bufio.NewScanner(f)
		for sc.Scan() {
			fields := strings.Fields(sc.Text())
			if len(fields) < 4 || fields[3] != tcpListen {
				continue
			}
			ap, err := parseProcAddr(fields[1])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if ap.Addr() != engineDNS() {
				out = append(out, ap)
			}
		}
		if err := sc.Err(); err != nil {
			return nil, err
		}
	}
	return out, nil
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
