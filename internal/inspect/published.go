// Package inspect says to people, and to the programs that they write, what is
// published of a confinement and what its log has: explain, suggest, doctor and log.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/ids"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/upstream"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/privdrop"
)

// Report is what a command has found out: for people by Write, for programs as JSON.
type Report interface {
	Write(w io.Writer, coloured bool) error
}

type published struct {
	policy *policy.Policy
	dir    string       // of the policy's files
	state  *state.State // nil: no keeper has published any
	leases lease.Report
	probe  ofProbe

	grants  []grant.Grant
	inbound []uint16
}

// readPublished reads what the keeper has published; without one, the files of dir.
func readPublished(dir string) (published, error) {
	run, err := state.Find()
	if err != nil {
		return readOpen(published{}, dir)
	}
	out := published{state: &state.State{}, probe: probesOf()}
	if err := run.Read(state.StatusFile, out.state); err != nil {
		return out, state.NotRunning(err)
	}
	if out.state.Phase == state.PhaseOpen {
		return readOpen(out, dir)
	}
	if out.policy, out.dir, out.inbound, err = state.ReadRules(filepath.Join(string(run), state.PolicyFile)); err != nil {
		return out, fault.New(fault.Failure, "see agent-init status", "the policy in force is not published: %w", err)
	}
	if err := run.Read(state.LeasesFile, &out.leases); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, fault.New(fault.Failure, "see agent-init status", "the leases are not published: %w", err)
	}
	var g grant.Report
	if err := run.Read(state.GrantsFile, &g); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, fault.New(fault.Failure, "see agent-init status", "the grants are not published: %w", err)
	}
	out.grants = g.Grants
	return out, nil
}

// readOpen reads the files of dir, where nothing holds them.
func readOpen(out published, dir string) (published, error) {
	p, err := readFiles(policy.ReadOptions{Dir: dir, HostsFile: container.HostsFile(""), SavedFile: state.SavedFile, Ceiling: state.CeilingHome, SeenFile: state.SeenFile})
	if err != nil {
		return published{}, err
	}
	out.policy, out.dir, out.inbound = p, dir, state.Inbound(p)
	return out, nil
}

// readFiles reads the policy's files, and takes them for a policy.
func readFiles(o policy.ReadOptions) (*policy.Policy, error) {
	b, err := policy.Read(o)
	if err != nil {
		return nil, container.ReadFault(err)
	}
	p, err := policy.Parse(b, allowlist.Files)
	if err != nil {
		return nil, fault.New(fault.Policy, "see agent-init check", "the policy has errors\n%w", err)
	}
	return p, nil
}

// auditOf is where the log is, and since when agent-init runs: zero if it does not.
func auditOf(s *state.State) (file string, started time.Time) {
	if s != nil && s.Audit.File != "" {
		return s.Audit.File, s.Started
	}
	return filepath.Join(state.AuditDir, audit.FileName), time.Time{}
}

// painted is s in a colour of the terminal's, if that is to be seen.
func painted(s, code string, coloured bool) string {
	if !coloured || code == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// patient is all that doctor looks at, so that what it makes of it can be tested.
type patient struct {
	now   time.Time
	state *state.State // nil: agent-init does not run

	bounding   uint64                             // capabilities
	groups     uint64                             // that the guard's can be drawn from
	probe      func() (backend string, err error) // nil: not to be tried
	network    error                              // why it is not the container's own
	processes  string                             // why they are not the container's own
	program    error                              // why others than root could replace agent-init
	noNewPrivs bool

	legacyTables                 []string
	ip6tables, loopback6, route6 bool
	addrs6                       int      // global IPv6 addresses, not of the loopback
	listens                      []uint16 // ports of the agent's, not on the loopback
	inbound                      []uint16

	dir        string
	policy     *policy.Policy
	policyErr  error
	fleeting   []string            // why what was saved is gone with the container
	inForce    *policy.Policy      // what a keeper has published, else policy
	keys       map[string][]string // see keysIn
	sockets    []string            // that are mounted, or named by the agent's environment
	newest     time.Time
	newestFile string

	servers       []string
	passedOver    []string // servers of resolv.conf that are not asked, and why
	resolvFault   string   // why none of them is
	deniedNames   []string
	strippedNames int
	trusts        trusting

	proxyFailed    uint64 // connections that the upstream proxy did not make since the start
	proxyLast      audit.Event
	proxyVariables []string // of the agent's, which name a proxy
}

// may says whether a root shell in the container may have a capability.
func (p *patient) may(capability uint) bool { return p.bounding&(1<<capability) != 0 }

func (p *patient) backend() string {
	if p.state == nil {
		return ""
	}
	return p.state.Firewall.Backend
}

func readPatient(ctx context.Context, dir string, env map[string]string) patient {
	p := patient{now: time.Now(), dir: dir, program: container.ProgramPathFault(env["PATH"])}
	var agent privdrop.Spec
	var agents map[string]string // if agent-init has started it
	mode := ""
	var s state.State
	if state.Published(state.StatusFile, &s) == nil {
		p.state, mode = &s, s.Mode
	}
	if state.Published(state.AgentFile, &agent) == nil {
		env = container.Environ(agent.Env)
		agents = env
	}
	p.trusts, p.proxyVariables = trustingBy(agents), container.ProxyVariables(agents)
	p.readPrivileges()
	if p.state != nil && p.state.Keeper.Alive() {
		p.listens = firewall.ListeningPorts(p.state.Agent.UID)
		if in, err := readPublished(dir); err == nil {
			p.inbound, p.inForce = in.inbound, in.policy
		}
	} else {
		p.probe = func() (string, error) {
			fw, err := firewall.Open(ctx, firewall.Options{Backend: "nftables"})
			if err != nil {
				return "", err
			}
			defer fw.Close()
			return fw.Backend, nil
		}
	}
	if p.may(unix.CAP_NET_ADMIN) {
		p.processes = container.ForeignProcesses("/proc")
		p.network = firewall.CheckNamespace(true)
	}
	p.readNetwork()
	p.policy, p.policyErr = readFiles(policy.ReadOptions{Dir: dir, HostsFile: container.HostsFile(mode), SavedFile: state.SavedFile, Ceiling: state.CeilingHome, SeenFile: state.SeenFile, AgentUID: agent.Identity.UID})
	if p.inForce == nil {
		p.inForce = p.policy
	}
	if st, err := os.Stat(state.SavedFile); err == nil && st.Size() > 0 {
		p.fleeting = container.NoVolume(state.SavedFile)
	}
	var routes []policy.RouteEntry
	if p.inForce != nil {
		routes = p.inForce.RouteEntries()
	}
	p.keys = keysIn(env, routes)
	for _, f := range []string{stage.Self, filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "allowlist.txt"), "/etc/resolv.conf", "/etc/hosts"} {
		if st, err := os.Stat(f); err == nil && st.ModTime().After(p.newest) { // what was made before now
			p.newest, p.newestFile = st.ModTime(), f
		}
	}
	p.readServers()
	p.sockets = container.MountedSockets("/proc/self/mountinfo", env)
	p.readLog()
	return p
}

// readPrivileges looks at its own: what docker exec starts has the container's bounding set.
func (p *patient) readPrivileges() {
	for c := range uint(unix.CAP_LAST_CAP + 1) {
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err == nil && has == 1 {
			p.bounding |= 1 << c
		}
	}
	set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	p.noNewPrivs = err == nil && set == 1
	p.groups, _ = ids.GroupsToDraw()
}

// readNetwork looks for IPv6, for ip6tables, and for the tables that iptables-legacy has made.
func (p *patient) readNetwork() {
	for _, f := range []string{"/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"} {
		data, _ := os.ReadFile(f) // it is there if the kernel has iptables
		for _, t := range strings.Fields(string(data)) {
			if !slices.Contains(p.legacyTables, t) {
				p.legacyTables = append(p.legacyTables, t)
			}
		}
	}
	for _, name := range []string{"ip6tables-legacy-restore", "ip6tables-restore"} {
		for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"} {
			_, err := os.Stat(filepath.Join(dir, name))
			p.ip6tables = p.ip6tables || err == nil
		}
	}
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
	p.route6 = err == nil && len(data) == 0 // gVisor's kernel does not tell of routes
	for line := range strings.Lines(string(data)) {
		// The default route, by way of something else than the loopback.
		if f := strings.Fields(line); len(f) >= 10 && strings.Trim(f[0], "0") == "" && f[1] == "00" && f[9] != "lo" {
			p.route6 = true
		}
	}
}

func (p *patient) readServers() {
	if p.state != nil { // it tells who is asked, which a file does not
		p.servers, p.passedOver, p.resolvFault = p.state.DNS.Servers, p.state.Guard.PassedOver, p.state.DNS.Fault
		return
	}
	r := upstream.Read(upstream.File)
	own, _ := upstream.LocalAddrs() // as far as they are known
	upstream.PassOver(&r, own, "")
	asked := &policy.Policy{}
	if p.policy != nil {
		asked.Settings = p.policy.Settings
	}
	asked.Resolv, p.passedOver, p.resolvFault = r, r.PassedOver, r.Fault
	list, _ := upstream.Of(asked)
	for _, u := range list {
		p.servers = append(p.servers, u.String())
	}
}

func (p *patient) readLog() {
	file, started := auditOf(p.state)
	probe := probesOf()
	names, stripped := map[string]bool{}, map[string]bool{}
	_ = audit.Lines(file, func(line []byte) bool { // without a log there is nothing to find in it
		e, err := audit.Decode(line)
		if err == nil && !e.Time.Before(started) && distrusts(e) && probe.theAgents(e) && (len(p.trusts.refused) < 1000 || p.trusts.refused[e.Name] > 0) {
			p.trusts.refused[e.Name] += 1 + e.Suppressed
		}
		if err == nil && !e.Time.Before(started) && byProxy(e) {
			p.proxyFailed, p.proxyLast = p.proxyFailed+1+e.Suppressed, e
		}
		if err != nil || e.Time.Before(started) || !Denied(e) || e.Asker != audit.ByGuard && !probe.theAgents(e) || e.Kind != audit.DNS || len(names) > 100_000 {
			return true
		}
		names[e.Name] = true
		if e.IP != "" && e.Verdict == audit.Deny {
			stripped[e.Name] = true
		}
		return true
	})
	p.deniedNames, p.strippedNames = slices.Sorted(maps.Keys(names)), len(stripped)
}

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
