package rig

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// Backend is the packet filter that the lab runs with: AGENT_INIT_TEST_BACKEND,
// or "" for agent-init's own choice, which is nftables here.
func Backend() string { return os.Getenv("AGENT_INIT_TEST_BACKEND") }

func Xtables() bool { return strings.HasPrefix(Backend(), "xtables") }

// WithBackend has agent-init use that packet filter, with the capability that it
// needs, and the engine's rules come from the same programs.
func WithBackend(opts lab.BoxOptions) lab.BoxOptions {
	if Backend() == "" {
		return opts
	}
	opts.Env = append(slices.Clip(opts.Env), "AGENT_INIT_BACKEND="+Backend())
	if !Xtables() {
		return opts
	}
	opts.DockerVia = "legacy"
	if opts.Caps == nil {
		opts.Caps = lab.DefaultCaps()
	}
	if len(opts.Caps) > 0 {
		opts.Caps = append(slices.Clip(opts.Caps), "NET_RAW")
	}
	return opts
}

// Program runs a program of the machine in the calling thread's network
// namespace.
func Program(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return string(out), nil
}

// xtRuleset is ruleset for iptables-legacy and ipsets: in the same words.
func xtRuleset() (string, error) {
	var out []string
	for _, name := range []string{"iptables-", "ip6tables-"} {
		text, err := Program(name + "legacy-save")
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			switch {
			case line == "" || line[0] == '#' || line == "COMMIT":
			case line[0] == '*':
				out = append(out, "table "+name+line[1:]+" 0")
			case line[0] == ':':
				chain, _, _ := strings.Cut(line[1:], "[") // counters
				out = append(out, "chain "+strings.Replace(chain, "agent-init-", "agent-init ", 1))
			default:
				out = append(out, "rule "+line)
			}
		}
	}
	text, err := Program("ipset", "save")
	if err != nil {
		return "", err
	}
	var sets []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " hashsize ") // and what is random
		switch leases := strings.Contains(line, "-lease") || strings.Contains(line, "-live"); {
		case strings.HasPrefix(line, "create "):
			sets = append(sets, "set "+strings.Replace(line[len("create "):], "agent-init-", "agent-init ", 1))
		case !leases:
			sets = append(sets, "element "+line)
		}
	}
	slices.Sort(sets)
	return strings.Join(append(out, sets...), "\n"), nil
}

// xtLeases are the entries of the lease sets, by another reader than
// agent-init's own.
func xtLeases() (map[netip.AddrPort]time.Duration, error) {
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	out := map[netip.AddrPort]time.Duration{}
	for _, name := range []string{"agent-init-lease4", "agent-init-lease6", "agent-init-gated-lease4", "agent-init-gated-lease6",
		"agent-init-inspected-lease4", "agent-init-inspected-lease6"} {
		set, err := h.IpsetList(name)
		if errors.Is(err, unix.ENOENT) { // sealed, or nothing yet
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, e := range set.Entries {
			a, ok := netip.AddrFromSlice(e.IP)
			if !ok || e.Port == nil || e.Timeout == nil {
				return nil, fmt.Errorf("%s: an entry is %+v", name, e)
			}
			ap := netip.AddrPortFrom(a.Unmap(), *e.Port)
			out[ap] = max(out[ap], time.Duration(*e.Timeout)*time.Second)
		}
	}
	return out, nil
}
