package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/ids"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/policy"
)

// finding is one line of doctor's. The names of its fields in JSON are public.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"` // pass, warn or fail
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// The results.
const (
	passes = "pass"
	warns  = "warn"
	fails  = "fail"
)

// Diagnosis is what doctor --json prints.
type Diagnosis struct {
	Version  int       `json:"version"`
	OK       bool      `json:"ok"` // nothing fails
	Findings []finding `json:"findings"`

	check string // that is being made
}

func (d *Diagnosis) note(result, fix, format string, args ...any) {
	d.Findings = append(d.Findings, finding{d.check, result, fmt.Sprintf(format, args...), fix})
	d.OK = d.OK && result != fails
}

func (d *Diagnosis) warn(fix, format string, args ...any) { d.note(warns, fix, format, args...) }
func (d *Diagnosis) fail(fix, format string, args ...any) { d.note(fails, fix, format, args...) }

// checks note what is not well. What they return is said where they have noted nothing.
var checks = []struct {
	name string
	look func(*Diagnosis, patient) (well string)
}{
	{"agent-init", checkKeeper},
	{"program", func(d *Diagnosis, p patient) string { // who could have an engine start something else as root
		if p.program != nil {
			f := fault.Of(p.program, "look for this program")
			d.fail(f.Remedy, "%v", f)
		}
		return "nobody but root can replace agent-init, or come before it on PATH"
	}},
	{"capabilities", checkCapabilities},
	{"privileges", func(d *Diagnosis, p patient) string {
		if !p.noNewPrivs {
			d.warn("docker: --security-opt=no-new-privileges; compose: security_opt: [no-new-privileges:true]; kubernetes: securityContext: {allowPrivilegeEscalation: false}",
				"what docker exec starts can gain privileges by setuid programs; the agent can't")
		}
		return "nothing in this container can gain any (no_new_privs)"
	}},
	{"groups", func(d *Diagnosis, p patient) string {
		if p.groups < ids.FewestGroups {
			d.warn("map 65536 groups into the container's user namespace (/etc/subgid)",
				"the guard is known by its uid alone: %d groups are mapped, and it takes %d", p.groups, ids.FewestGroups)
		}
		return "enough to draw one for the guard"
	}},
	{"kernel", checkKernel},
	{"network", func(d *Diagnosis, p patient) string {
		if p.network != nil {
			d.fail("docker: no --network=host; compose: no network_mode: host; kubernetes: hostNetwork: false", "%v", p.network)
		}
		return "of the container's own"
	}},
	{"processes", func(d *Diagnosis, p patient) string {
		if p.processes != "" {
			d.fail(container.PidRemedy, "%s", p.processes)
		}
		return "of the container's own"
	}},
	{"iptables", checkIPTables},
	{"IPv6", checkIPv6},
	{"policy", checkPolicyFiles},
	{"ceiling", func(d *Diagnosis, p patient) string {
		if p.policy == nil || p.policy.Ceiling() == nil {
			return ""
		}
		for _, c := range p.policy.Cuts()[:min(len(p.policy.Cuts()), 3)] {
			d.warn("take it out, or ask whoever made the ceiling", "%v: %s is %s", c.Source, c.Text, c)
		}
		return "nothing of the policy is above it"
	}},
	{"mounts", checkMounts},
	{"keys", checkKeys},
	{"broker", checkBroker},
	{"inspected", checkInspected},
	{"proxy", checkProxy},
	{"inbound", func(d *Diagnosis, p patient) string { // servers of the agent's that nobody outside reaches
		for _, port := range p.listens {
			if r := explainInbound(port, p.inbound, p.listens); !r.Allowed {
				d.warn(fmt.Sprintf("if it is to be reached from outside, add inbound: [%d] to policy.yaml", port), "%s: connections from outside are refused", r.Reason)
			}
		}
		return ""
	}},
	{"clock", checkClock},
	{"DNS", checkUpstreams},
	{"DoH", checkEncryptedDNS},
	{"audit log", checkAudit},
}

// Examine looks for what is wrong with this container. dir is the policy's, and env the
// environment that agent-init has, where the agent has none.
func Examine(ctx context.Context, dir string, env map[string]string) Diagnosis {
	return examine(readPatient(ctx, dir, env))
}

func examine(p patient) Diagnosis {
	d := Diagnosis{Version: 1, OK: true}
	for _, c := range checks {
		noted := len(d.Findings)
		d.check = c.name
		if well := c.look(&d, p); well != "" && len(d.Findings) == noted {
			d.note(passes, "", "%s", well)
		}
	}
	return d
}

func (d Diagnosis) Write(out io.Writer, coloured bool) error {
	w := &text.Screen{W: out}
	colours := map[string]string{passes: "32", warns: "33", fails: "31"}
	count := map[string]int{}
	for _, f := range d.Findings {
		count[f.Result]++
		w.Line("%s  %-13s %s", painted(f.Result, colours[f.Result], coloured), f.Check, text.Clean(strings.ReplaceAll(f.Detail, "\n", "; ")))
		if f.Fix != "" {
			w.Line("        fix: %s", text.Clean(f.Fix))
		}
	}
	w.Line("%d passed, %s, %d failed", count[passes], text.Counted(count[warns], "warning", "warnings"), count[fails])
	return w.Err
}

func checkKeeper(d *Diagnosis, p patient) string {
	if p.state == nil {
		d.fail("agent-init run (as the entrypoint), up or sidecar", "NOT CONFINED: agent-init has not confined this container")
		return ""
	}
	if ok, why := p.state.Healthy(p.now); !ok {
		d.fail("see agent-init status", "%s", strings.Join(why, "; "))
	}
	return fmt.Sprintf("confined and healthy, %s by %s", p.state.Mode, p.state.Firewall.Backend)
}

func checkCapabilities(d *Diagnosis, p patient) string {
	for _, c := range []struct {
		bit       uint
		name, why string
	}{
		{unix.CAP_NET_ADMIN, "NET_ADMIN", "to confine the network"}, {unix.CAP_SETUID, "SETUID", "to become the agent's user"},
		{unix.CAP_SETGID, "SETGID", "to set the agent's groups"}, {unix.CAP_SETPCAP, "SETPCAP", "to take all capabilities from the agent"},
	} {
		if !p.may(c.bit) {
			d.fail(fault.ByHand.Capabilities(c.name), "%s is missing, %s", c.name, c.why)
		}
	}
	const rest = "docker: --cap-drop=ALL; compose: cap_drop: [ALL]; kubernetes: securityContext: {capabilities: {drop: [ALL]}}; then add the four that are needed"
	switch {
	case p.may(unix.CAP_SYS_ADMIN):
		d.warn(rest+"; no --privileged", "SYS_ADMIN is there: a root shell in this container can undo the confinement")
	case p.may(unix.CAP_NET_RAW) && !strings.HasPrefix(p.backend(), "xtables"):
		d.warn(rest, "NET_RAW is there: a process that has it can send below the packet filter, and nftables does not need it")
	}
	return "NET_ADMIN, SETUID, SETGID and SETPCAP are there"
}

func checkKernel(d *Diagnosis, p patient) string {
	switch {
	case p.backend() != "" && p.state.Keeper.Alive():
		return "holds the rules, by " + p.state.Firewall.Form()
	case p.probe == nil:
		return ""
	case !p.may(unix.CAP_NET_ADMIN): // the answer would be about that, and not about the kernel
		d.warn(fault.ByHand.Capabilities("NET_ADMIN"), "it can't be tried without NET_ADMIN")
		return ""
	}
	name, err := p.probe()
	if err != nil {
		d.fail("use a kernel with nf_tables (Linux 5.6 or later)", "can't hold the rules: %v", err)
	}
	return "can hold the rules, by " + name
}

// checkIPTables looks for the programs that the rules need, and for rules that iptables-legacy holds beside nftables.
func checkIPTables(d *Diagnosis, p patient) string {
	backend := p.backend()
	switch {
	case strings.HasPrefix(backend, "xtables") && !p.ip6tables:
		d.fail("apt-get install iptables, or use --backend nftables", "ip6tables is missing, and %s needs it for IPv6", backend)
	case len(p.legacyTables) > 0 && backend != "xtables-legacy":
		d.warn("remove the rules of iptables-legacy, or leave them: neither can open what the other closes",
			"iptables-legacy has tables here (%s) beside nftables", strings.Join(p.legacyTables, ", "))
	case backend == "" || backend == "nftables":
		return "not needed: nftables holds both families"
	}
	return "both families are there, by " + backend
}

func checkIPv6(d *Diagnosis, p patient) string {
	const off = "docker: --sysctl net.ipv6.conf.all.disable_ipv6=1; compose: sysctls: [net.ipv6.conf.all.disable_ipv6=1]; kubernetes: securityContext.sysctls of the pod"
	word, _ := p.state.Word()
	switch {
	case p.addrs6 == 0 && !p.loopback6:
		return "off"
	case !p.loopback6:
		d.warn(off+"; or turn it on for lo as well (net.ipv6.conf.lo.disable_ipv6=0)", "half up: there are addresses but no ::1, so names are neither answered nor reached over IPv6")
	case p.addrs6 > 0 && !p.route6:
		d.warn(off+"; or give the network a route", "half up: there are addresses but no way out, so programs that try IPv6 first lose time")
	case p.addrs6 == 0:
		return "on the loopback only"
	case word != "confined" || p.state.Monitor:
		return "up, like IPv4"
	}
	return "up, and confined like IPv4"
}

func checkPolicyFiles(d *Diagnosis, p patient) string {
	dir := path.Clean(p.dir)
	switch {
	case p.policyErr != nil:
		fix := "see agent-init check"
		if f, ok := errors.AsType[*fault.Fault](p.policyErr); ok && f.Remedy != "" {
			fix = f.Remedy
		}
		d.fail(fix, "%s", text.FirstFault(p.policyErr.Error()))
		return ""
	case dir == stage.Workspace || strings.HasPrefix(dir, stage.Workspace+"/"):
		d.fail("put it at /etc/agent-init in the image, or mount it there read-only", "%s is inside the workspace, which the agent writes", p.dir)
	case len(p.fleeting) > 0:
		d.warn("start it with a volume: -v NAME:"+path.Dir(path.Dir(state.SavedFile)), "what was saved with allow --save is gone with this container, %s", state.SavedFile)
	case len(p.policy.Warnings) > 0:
		list := p.policy.Warnings
		d.warn("see agent-init check", "%s, the first: %v", text.Counted(len(list), "warning", "warnings"), list[0])
	}
	size := "root's alone; " + state.SizeOf(p.policy.Counts())
	if p.state != nil && p.state.Policy.Phase != "" {
		size += "; the phase is " + p.state.Policy.Phase
	}
	return size
}

// checkMounts looks for sockets that lead out of the container without a packet.
func checkMounts(d *Diagnosis, p patient) string {
	for _, s := range p.sockets {
		name := path.Base(s)
		switch {
		case container.IsEngineSocket(s):
			d.fail("remove it: docker: -v "+s+":"+s+"; compose: volumes; kubernetes: hostPath", "%s is an engine's socket: who can open it is root on the machine", s)
		case strings.Contains(strings.ToLower(s), "ssh") || name == "agent.sock" || name == "S.gpg-agent":
			d.warn("remove it, or load only the keys that the agent may use (ssh-add -c asks each time)", "%s is a key agent's socket: the agent can sign in as you, to hosts that the policy allows", s)
		}
	}
	return "no engine's and no key agent's socket"
}

// checkClock compares with what surely lies in the past: certificates are not valid yet if the clock is behind.
func checkClock(d *Diagnosis, p patient) string {
	const fix = "set the machine's clock (timedatectl set-ntp true)"
	now := p.now.UTC().Format(time.RFC3339)
	if p.newest.Sub(p.now) > time.Minute {
		d.fail(fix, "is behind: it says %s, and %s was changed at %s", now, p.newestFile, p.newest.UTC().Format(time.RFC3339))
	} else if p.now.Year() > 2100 {
		d.fail(fix, "says %s", now)
	}
	return "not behind the files of this container"
}

// checkUpstreams looks at how the guard fares with its servers.
func checkUpstreams(d *Diagnosis, p patient) string {
	const fix = "give servers that answer: docker: --dns; compose: dns; kubernetes: dnsPolicy and dnsConfig; or dns.upstream in policy.yaml"
	notAsked := strings.Join(p.passedOver, "; ")
	where := fmt.Sprintf("%d upstream servers", len(p.servers))
	switch {
	case len(p.servers) == 0 && notAsked != "":
		d.fail(fix, "no server of resolv.conf is asked: %s", notAsked)
	case len(p.servers) == 0 && p.resolvFault != "":
		d.fail(fix, "there is no upstream server: %s", p.resolvFault)
	case len(p.servers) == 0:
		d.fail(fix, "there is no upstream server: neither resolv.conf nor dns.upstream names one")
	case len(p.servers) == 1:
		where = p.servers[0]
	}
	if p.state == nil || len(p.servers) == 0 {
		return where
	}
	dns := p.state.DNS
	asked := text.Counted(dns.Asked, "question", "questions") + " in 5 minutes"
	switch {
	case dns.Trouble(p.now) != "":
		d.fail(fix, "%s", dns.Trouble(p.now))
	case dns.Asked >= 3 && dns.Failed*2 > dns.Asked:
		d.fail(fix, "%s: %d of %s got no answer", where, dns.Failed, asked)
	case notAsked != "":
		d.warn(fix+"; to vouch for a server of the container itself, name it there with the word local", "%s; not asked: %s", where, notAsked)
	case p.strippedNames > 0:
		d.warn("see agent-init log --denied; if the names are of your own network, add `private` to their entries",
			"%s: answers for %s had private or reserved addresses: somebody answers in place of the real servers, or the names are internal",
			where, text.Counted(p.strippedNames, "name", "names"))
	case dns.Failed > 0:
		d.warn("see agent-init log", "%s: %d of %s got no answer", where, dns.Failed, asked)
	case dns.Asked == 0 && dns.Answered.IsZero():
		return where + "; nothing was asked yet"
	case dns.Asked == 0:
		return fmt.Sprintf("%s; the last answer was %s's, %s", where, dns.By, text.Ago(dns.Answered))
	}
	return where + "; " + asked + ", all answered"
}

// knownResolvers are names that DNS over HTTPS and TLS is served under.
var knownResolvers = [...]string{
	"cloudflare-dns.com", "mozilla.cloudflare-dns.com", "chrome.cloudflare-dns.com", "one.one.one.one", "dns.google", "dns.google.com",
	"dns.quad9.net", "doh.opendns.com", "dns.adguard-dns.com", "doh.cleanbrowsing.org", "dns.nextdns.io", "doh.mullvad.net", "dns.mullvad.net",
}

func checkEncryptedDNS(d *Diagnosis, p patient) string {
	for _, name := range knownResolvers {
		if p.policy == nil {
			break
		}
		if ruling := p.policy.Decide(name, policy.HTTPS); ruling.Allowed {
			d.warn("remove it, unless it is what you want: DNS over HTTPS carries any name, to anyone", "%s allows %s, a public resolver", ruling.Rule.Source, name)
		}
	}
	asked := slices.DeleteFunc(slices.Clone(p.deniedNames), func(name string) bool { return !slices.Contains(knownResolvers[:], name) })
	if len(asked) > 0 {
		d.warn("turn it off in the program's settings; names are answered without it", "a program tries to use DNS over HTTPS, and is denied: %s", strings.Join(asked, ", "))
	}
	return "no program tries to use another resolver"
}

func checkAudit(d *Diagnosis, p patient) string {
	if p.state == nil {
		return ""
	}
	log := p.state.Audit
	if log.Fault != "" {
		d.fail("make room on the file system of "+log.File, "events are being lost: %s", log.Fault)
	} else if !strings.HasPrefix(log.File, state.AuditDir) {
		d.warn("mount a volume that belongs to root at "+state.AuditDir, "%s is gone with the container", log.File)
	}
	return log.File
}
