package firewall

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
)

// initialNetNS is the inode of the machine's own network namespace, fixed
// since Linux 6.18; before, no namespace has it.
const initialNetNS = 4026531833

// CheckNamespace refuses, with an error, to work in a network namespace that isn't this container's own: the host's, or
// one that others live in. Rules there would confine the wrong processes. It reads only, and needs NET_ADMIN for some
// of it. If it is shared, as in a pod or a compose project, others may listen there; it is never the host's own.
func CheckNamespace(shared bool) error {
	for _, check := range []func() (string, error){initialNamespace, bridges, engineChains} {
		seen, err := check()
		if err != nil {
			return nfnetlink.Explain("look at the network namespace", err)
		}
		if seen != "" {
			return fmt.Errorf("%w: this is not the container's own network: %s", nfnetlink.ErrUnsupported, seen)
		}
	}
	if shared {
		return nil
	}
	seen, err := listeners(procNet, "")
	if err != nil {
		return fmt.Errorf("look at the network namespace: %w", err)
	}
	if len(seen) > 0 {
		return fmt.Errorf("%w: others use this network namespace already: something listens on %s", nfnetlink.ErrUnsupported, seen[0])
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
	for try := 0; errors.Is(err, netlink.ErrDumpInterrupted) && try < 100; try++ { // one has changed meanwhile
		links, err = netlink.LinkList()
	}
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
func engineChains() (found string, err error) {
	if nfnetlink.Supported() != nil { // a sandbox's kernel of its own, which no engine routes by
		return "", nil
	}
	list := nfnetlink.Request{Subsystem: unix.NFNL_SUBSYS_NFTABLES, Type: unix.NFT_MSG_GETCHAIN, Flags: unix.NLM_F_DUMP}
	err = nfnetlink.Stream(list, func(m nfnetlink.Attrs) error {
		if name := m.String(unix.NFTA_CHAIN_NAME); found == "" && engineChain(name) {
			found = "there is a rule chain of a container engine, " + name
		}
		return nil
	})
	if err != nil && !nfnetlink.Absent(err) { // a kernel without nf_tables
		return "", fmt.Errorf("list chains: %w", err)
	}
	return found, nil
}

// engineChain says whether only a host has a chain of that name. Docker puts
// DOCKER_OUTPUT and DOCKER_POSTROUTING into containers, for its DNS.
func engineChain(name string) bool {
	return name == "DOCKER" || slices.ContainsFunc([]string{"DOCKER-", "KUBE-", "CNI-", "NETAVARK"},
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
