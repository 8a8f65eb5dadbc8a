package inspect

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
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
}

// Examine looks for what is wrong with this container. dir is the policy's, and env the
// environment that agent-init has, where the agent has none.
func Examine(ctx context.Context, dir string, env map[string]string) Diagnosis {
	return examine(ctx, readPatient(dir, env))
}

// examine makes every check.
func examine(ctx context.Context, p patient) Diagnosis {
	d := Diagnosis{Version: 1, OK: true}
	for _, check := range []func(context.Context, patient) []finding{
		checkKeeper, checkProgram, checkCapabilities, checkNoNewPrivs, checkGroups, checkKernel, checkNetwork, checkProcesses, checkIPTables, checkIPv6,
		checkPolicyFiles, checkMounts, checkInbound, checkClock, checkUpstreams, checkEncryptedDNS, checkAudit,
	} {
		for _, f := range check(ctx, p) {
			d.Findings = append(d.Findings, f)
			d.OK = d.OK && f.Result != fails
		}
	}
	return d
}

// Write shows the findings, and counts them.
func (d Diagnosis) Write(out io.Writer, coloured bool) error {
	w := &text.Screen{W: out}
	colours := map[string]string{passes: "\x1b[32m", warns: "\x1b[33m", fails: "\x1b[31m"}
	count := map[string]int{}
	for _, f := range d.Findings {
		count[f.Result]++
		word := f.Result
		if coloured {
			word = colours[word] + word + "\x1b[0m"
		}
		w.Line("%s  %-13s %s", word, f.Check, text.Clean(strings.ReplaceAll(f.Detail, "\n", "; ")))
		if f.Fix != "" {
			w.Line("        fix: %s", text.Clean(f.Fix))
		}
	}
	w.Line("%d passed, %s, %d failed", count[passes], text.Counted(count[warns], "warning", "warnings"), count[fails])
	return w.Err
}

func pass(check, format string, args ...any) []finding {
	return []finding{{Check: check, Result: passes, Detail: fmt.Sprintf(format, args...)}}
}

func warn(check, fix, format string, args ...any) []finding {
	return []finding{{Check: check, Result: warns, Detail: fmt.Sprintf(format, args...), Fix: fix}}
}

func fail(check, fix, format string, args ...any) []finding {
	return []finding{{Check: check, Result: fails, Detail: fmt.Sprintf(format, args...), Fix: fix}}
}

// checkKeeper says whether agent-init runs, and is healthy.
func checkKeeper(_ context.Context, p patient) []finding {
	if p.state == nil {
		return fail("agent-init", "agent-init run (as the entrypoint), up or sidecar", "NOT CONFINED: agent-init has not confined this container")
	}
	if ok, why := p.state.Healthy(p.now); !ok {
		return fail("agent-init", "see agent-init status", "%s", strings.Join(why, "; "))
	}
	return pass("agent-init", "confined and healthy, %s by %s", p.state.Mode, p.state.Firewall.Backend)
}

func checkCapabilities(_ context.Context, p patient) []finding {
	var out []finding
	for _, c := range []struct {
		bit  uint
		name string
		why  string
	}{
		{12, "NET_ADMIN", "to confine the network"}, {7, "SETUID", "to become the agent's user"},
		{6, "SETGID", "to set the agent's groups"}, {8, "SETPCAP", "to take all capabilities from the agent"},
	} {
		if p.bounding&(1<<c.bit) == 0 {
			out = append(out, fail("capabilities", stage.CapabilityFix(c.name), "%s is missing, %s", c.name, c.why)...)
		}
	}
	const rest = "docker: --cap-drop=ALL; compose: cap_drop: [ALL]; kubernetes: securityContext: {capabilities: {drop: [ALL]}}; then add the four that are needed"
	xtables := p.state != nil && strings.HasPrefix(p.state.Firewall.Backend, "xtables")
	switch {
	case p.bounding&(1<<21) != 0: // SYS_ADMIN
		out = append(out, warn("capabilities", rest+"; no --privileged", "SYS_ADMIN is there: a root shell in this container can undo the confinement")...)
	case p.bounding&(1<<13) != 0 && !xtables: // NET_RAW
		out = append(out, warn("capabilities", rest, "NET_RAW is there: a process that has it can send below the packet filter, and nftables does not need it")...)
	}
	if len(out) == 0 {
		return pass("capabilities", "NET_ADMIN, SETUID, SETGID and SETPCAP are there")
	}
	return out
}

// checkProgram looks at who could have an engine start something else as root.
func checkProgram(_ context.Context, p patient) []finding {
	if p.program == nil {
		return pass("program", "nobody but root can replace agent-init, or come before it on PATH")
	}
	f := fault.Of(p.program, "look for this program")
	return fail("program", f.Remedy, "%v", f)
}

func checkNoNewPrivs(_ context.Context, p patient) []finding {
	if !p.noNewPrivs {
		return warn("privileges", "docker: --security-opt=no-new-privileges; compose: security_opt: [no-new-privileges:true]; kubernetes: securityContext: {allowPrivilegeEscalation: false}",
			"what docker exec starts can gain privileges by setuid programs; the agent can't")
	}
	return pass("privileges", "nothing in this container can gain any (no_new_privs)")
}

// checkGroups looks at whether there is a group to draw for the guard.
func checkGroups(_ context.Context, p patient) []finding {
	if p.groups < stage.FewestGroups {
		return warn("groups", "map 65536 groups into the container's user namespace (/etc/subgid)",
			"the guard is known by its uid alone: %d groups are mapped, and it takes %d", p.groups, stage.FewestGroups)
	}
	return pass("groups", "enough to draw one for the guard")
}

func checkKernel(ctx context.Context, p patient) []finding {
	switch {
	case p.state != nil && p.state.Firewall.Backend != "" && p.state.Keeper.Alive():
		return pass("kernel", "holds the rules, by %s", p.state.Firewall.Form())
	case p.probe == nil:
		return nil
	case p.bounding&(1<<unix.CAP_NET_ADMIN) == 0: // the answer would be about that, and not about the kernel
		return warn("kernel", stage.CapabilityFix("NET_ADMIN"), "it can't be tried without NET_ADMIN")
	}
	name, err := p.probe(ctx)
	if err != nil {
		return fail("kernel", "use a kernel with nf_tables (Linux 5.6 or later)", "can't hold the rules: %v", err)
	}
	return pass("kernel", "can hold the rules, by %s", name)
}

func checkNetwork(_ context.Context, p patient) []finding {
	if p.network == nil {
		return pass("network", "of the container's own")
	}
	return fail("network", "docker: no --network=host; compose: no network_mode: host; kubernetes: hostNetwork: false", "%v", p.network)
}

func checkProcesses(_ context.Context, p patient) []finding {
	if p.processes == "" {
		return pass("processes", "of the container's own")
	}
	return fail("processes", container.PidRemedy, "%s", p.processes)
}

// checkClock compares with what surely lies in the past: certificates are not
// valid yet if the clock is behind.
func checkClock(_ context.Context, p patient) []finding {
	if late := p.newest.Sub(p.now); late > time.Minute {
		return fail("clock", "set the machine's clock (timedatectl set-ntp true)", "is behind: it says %s, and %s was changed at %s",
			p.now.UTC().Format(time.RFC3339), p.newestFile, p.newest.UTC().Format(time.RFC3339))
	}
	if p.now.Year() > 2100 {
		return fail("clock", "set the machine's clock (timedatectl set-ntp true)", "says %s", p.now.UTC().Format(time.RFC3339))
	}
	return pass("clock", "not behind the files of this container")
}

func checkAudit(_ context.Context, p patient) []finding {
	if p.state == nil {
		return nil
	}
	if p.state.Audit.Fault != "" {
		return fail("audit log", "make room on the file system of "+p.state.Audit.File, "events are being lost: %s", p.state.Audit.Fault)
	}
	if !strings.HasPrefix(p.state.Audit.File, state.AuditDir) {
		return warn("audit log", "mount a volume that belongs to root at "+state.AuditDir, "%s is gone with the container", p.state.Audit.File)
	}
	return pass("audit log", "%s", p.state.Audit.File)
}
