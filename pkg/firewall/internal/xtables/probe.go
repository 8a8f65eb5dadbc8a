package xtables

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// probePrefix begins the names of a probe's sets and chains.
const probePrefix = "p-"

// probe loads, into chains where no packet comes, one of everything that plans
// are made of, and removes it. The versions that programs and kernels tell of
// themselves prove nothing. It finds out whether rules can put flows into zones. It seals first, if sealed is not nil.
func (x *Backend) probe(sealed *plan.Plan) (err error) {
	p, err := plan.Probe(probePrefix, false)
	if err != nil {
		return err
	}
	if err := x.dropProbe(); err != nil { // of one that was cut short
		return nfnetlink.Explain("probe ipset", err)
	}
	if sealed != nil {
		if err := x.Seal(*sealed); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, x.dropProbe()) }()
	if err := x.makeSets(p); err != nil {
		return nfnetlink.Explain("probe ipset", err)
	}
	x.Zoned = true
	for _, f := range xtFamilies() {
		tables, err := probeTables(p, f, x.uids)
		if err != nil {
			return err
		}
		zones := slices.DeleteFunc(slices.Clone(tables), func(t xtTable) bool { return t.name != "raw" })
		rest := slices.DeleteFunc(tables, func(t xtTable) bool { return t.name == "raw" })
		if err := x.try(f, rest); err != nil {
			return err
		}
		if err := x.try(f, zones); err != nil {
			x.log.Debug("flows can't be put into zones", "error", err)
			x.Zoned = false
		}
	}
	return nil
}

// probeTables returns the tables of a probe, whose chains nothing jumps to.
func probeTables(p plan.Plan, f plan.Family, uids []uidRange) ([]xtTable, error) {
	tables, err := xtTables(p, f, uids)
	for i := range tables {
		tables[i].hooks = nil
	}
	return tables, err
}

func (x *Backend) try(f plan.Family, tables []xtTable) error {
	if err := x.tools.load(f, restoreText(tables, nil, false)); err != nil {
		return fmt.Errorf("%w: IPv%d: %w", nfnetlink.ErrUnsupported, f, err)
	}
	return x.tools.load(f, restoreText(nil, made(tables), false))
}

// made are tables as they are there, once their chains are.
func made(tables []xtTable) xtLive {
	out := xtLive{}
	for _, t := range tables {
		out[t.name] = &xtLiveTable{rules: map[string][]string{}}
		for _, c := range t.chains {
			out[t.name].rules[c.name] = nil
		}
	}
	return out
}

// dropProbe removes the sets of a probe, and the chains of one that was cut short.
func (x *Backend) dropProbe() error {
	names, err := setNames(xtPrefix + probePrefix)
	if err != nil {
		return err
	}
	busy := slices.DeleteFunc(names, func(name string) bool { return destroySet(name) == nil })
	if len(busy) == 0 {
		return nil
	}
	for _, f := range xtFamilies() {
		if err := x.dropProbeChains(f); err != nil {
			return err
		}
	}
	for _, name := range busy {
		if err := x.destroyUnused(name); err != nil {
			return err
		}
	}
	return nil
}

func (x *Backend) dropProbeChains(f plan.Family) error {
	live, err := x.tools.read(f)
	if err != nil {
		return err
	}
	for _, t := range live {
		maps.DeleteFunc(t.rules, func(chain string, _ []string) bool { return !strings.HasPrefix(chain, xtPrefix+probePrefix) })
	}
	if text := restoreText(nil, live, false); text != "" {
		return x.tools.load(f, text)
	}
	return nil
}

// blamed quotes the line of text that err, a complaint of iptables-restore, gives the number of.
func blamed(text string, err error) string {
	m := regexp.MustCompile(`line:? (\d+)`).FindStringSubmatch(err.Error())
	if m == nil {
		return ""
	}
	n, _ := strconv.Atoi(m[1])
	lines := strings.Split(text, "\n")
	if n < 1 || n > len(lines) {
		return ""
	}
	return fmt.Sprintf(" (line %d is %q)", n, lines[n-1])
}

// lockFile returns the lock that iptables should take, or "" for its own, which others in this container take
// as well. On a read-only root that can't be made, and fallback is to be used.
func lockFile(fallback string) string {
	const usual = "/run/xtables.lock"
	fd, err := unix.Open(usual, unix.O_RDONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fallback
	}
	unix.Close(fd)
	return ""
}

// readUsed is read that doesn't make the kernel set up the tables: to look at them would.
func (t xtTools) readUsed(f plan.Family) (xtLive, error) {
	file := "/proc/thread-self/net/ip_tables_names"
	if f == plan.IPv6 {
		file = "/proc/thread-self/net/ip6_tables_names"
	}
	if names, err := os.ReadFile(file); err != nil || len(names) == 0 {
		return nil, nil // the kernel has none, or nobody uses them
	}
	return t.read(f)
}
