package inspect

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/upstream"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/privdrop"
)

// patient is all that doctor looks at, so that what it makes of it can be tested.
type patient struct {
	now           time.Time
	state         *state.State // nil: agent-init does not run
	bounding      uint64       // capabilities
	noNewPrivs    bool
	groups        uint64 // that the guard's can be drawn from
	probe         func(context.Context) (backend string, err error)
	network       error  // why it is not the container's own
	processes     string // why they are not the container's own
	program       error  // why others than root could replace agent-init
	legacyTables  []string
	has           func(program string) bool
	addrs6        int // global IPv6 addresses, not of the loopback
	loopback6     bool
	route6        bool
	dir           string
	policy        *policy.Policy
	policyErr     error
	sockets       []string // that are mounted, or named by the agent's environment
	newest        time.Time
	newestFile    string
	servers       []string
	passedOver    []string // servers of resolv.conf that are not asked, and why
	deniedNames   []string
	strippedNames int
	listens       []uint16 // ports of the agent's, not on the loopback
	inbound       []uint16
}

func readPatient(dir string, env map[string]string) patient {
	p := patient{now: time.Now(), dir: dir, has: hasProgram, legacyTables: legacyTables(), program: container.ProgramPathFault(env["PATH"])}
	var agent privdrop.Spec
	if run, err := state.Find(); err == nil {
		var s state.State
		if run.Read(state.StatusFile, &s) == nil {
			p.state = &s
		}
		if run.Read(state.AgentFile, &agent) == nil {
			env = container.Environ(agent.Env)
		}
	}
	p.readStatus("/proc/self/status")
	if n, err := stage.GroupsToDraw(); err == nil {
		p.groups = n
	}
	if p.state == nil || !p.state.Keeper.Alive() {
		p.probe = probeKernel
	}
	if p.bounding&(1<<unix.CAP_NET_ADMIN) != 0 {
		p.processes = container.ForeignProcesses("/proc")
		p.network = firewall.CheckNamespace(firewall.NamespaceOptions{Shared: true})
	}
	p.readIPv6()
	mode := ""
	if p.state != nil {
		mode = p.state.Mode
	}
	b, err := policy.Read(policy.ReadOptions{Dir: dir, HostsFile: container.HostsFile(mode), AgentUID: agent.Identity.UID})
	if err != nil {
		p.policyErr = container.ReadFault(err)
	} else if p.policy, err = policy.Parse(b, allowlist.Files); err != nil {
		p.policyErr = fault.New(fault.Policy, "see agent-init check", "the policy has errors\n%w", err)
	}
	if p.state != nil && p.state.Keeper.Alive() {
		p.listens = listeningHere(p.state.Agent.UID)
		if in, err := readPublished(dir); err == nil {
			p.inbound = in.inbound
		}
	}
	p.readClock(dir)
	p.readServers()
	p.sockets = container.MountedSockets("/proc/self/mountinfo", env)
	p.readLog()
	return p
}

// readStatus reads proc_pid_status(5). What docker exec starts has the
// container's bounding set.
func (p *patient) readStatus(path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		return
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch value = strings.TrimSpace(value); key {
		case "CapBnd":
			p.bounding, _ = strconv.ParseUint(value, 16, 64)
		case "NoNewPrivs":
			p.noNewPrivs = value == "1"
		}
	}
}

func probeKernel(ctx context.Context) (string, error) {
	fw, err := firewall.Open(ctx, firewall.Options{Backend: "nftables"})
	if err != nil {
		return "", err
	}
	defer fw.Close()
	return fw.Backend(), nil
}

func (p *patient) readIPv6() {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return
	}
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		switch {
		case err != nil || !prefix.Addr().Is6():
		case prefix.Addr().IsLoopback():
			p.loopback6 = true
		case prefix.Addr().IsGlobalUnicast():
			p.addrs6++
		}
	}
	data, err := os.ReadFile("/proc/net/ipv6_route")
	if err != nil {
		return
	}
	p.route6 = len(data) == 0 // gVisor's kernel does not tell of routes
	for line := range strings.Lines(string(data)) {
		// The default route, by way of something else than the loopback.
		if f := strings.Fields(line); len(f) >= 10 && strings.Trim(f[0], "0") == "" && f[1] == "00" && f[9] != "lo" {
			p.route6 = true
		}
	}
}

// legacyTables are the tables that iptables-legacy has made here.
func legacyTables() (out []string) {
	for _, f := range []string{"/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"} {
		data, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for _, t := range strings.Fields(string(data)) {
			if !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	return out
}

func hasProgram(name string) bool {
	return slices.ContainsFunc([]string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"}, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// readClock finds the newest of what was made before now.
func (p *patient) readClock(dir string) {
	for _, f := range []string{stage.Self, filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "allowlist.txt"), "/etc/resolv.conf", "/etc/hosts"} {
		if st, err := os.Stat(f); err == nil && st.ModTime().After(p.newest) {
			p.newest, p.newestFile = st.ModTime(), f
		}
	}
}

func (p *patient) readServers() {
	c, err := upstream.ReadConf("/etc/resolv.conf")
	if err != nil {
		c = upstream.Conf{}
	}
	own, _ := upstream.LocalAddrs()
	c.PassOver(own, "")
	p.passedOver = c.PassedOver
	if p.state != nil { // agent-init runs, and knows more
		p.passedOver = p.state.Guard.PassedOver
	}
	if p.policy == nil { // as far as it is known
		for _, s := range c.Servers {
			p.servers = append(p.servers, s.String())
		}
		return
	}
	list, err := upstream.Of(p.policy, c.Servers)
	if err != nil {
		return
	}
	for _, u := range list {
		p.servers = append(p.servers, u.Addr.String())
	}
}

// readLog collects what was denied since the start.
func (p *patient) readLog() {
	file, started := auditFile()
	probe := probesOf()
	names, stripped := map[string]bool{}, map[string]bool{}
	_ = audit.Lines(file, func(line []byte) bool { // without a log there is nothing to find in it
		e, err := audit.Decode(line)
		if err != nil || e.Time.Before(started) || !denied(e) || e.Asker != audit.ByGuard && !probe.theAgents(e) || e.Kind != audit.DNS || len(names) > 100_000 {
			return true
		}
		names[e.Name] = true
		if e.IP != "" && e.Verdict == audit.Deny {
			stripped[e.Name] = true
		}
		return true
	})
	p.deniedNames, p.strippedNames = sortedKeys(names), len(stripped)
}
