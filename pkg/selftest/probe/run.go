// Package probe makes the probes of a self-test, from the agent's side.
package probe

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/selftest"
)

// probe is one attempt. Its check has all but what came of it.
type probe struct {
	check   selftest.Check
	timeout time.Duration
	run     attempt
}

type attempt func(context.Context) outcome

// atOnce is how many probes are under way. Each has a socket or two, and a process may have few files.
const atOnce = 48

// Run tries everything in p, many at once, and reports. In a confined process it takes as long as the slowest of the
// required targets. Failures are in the report; Run has no error of its own.
func Run(ctx context.Context, p selftest.Plan) selftest.Report {
	started := time.Now()
	go func() { _, _ = x509.SystemCertPool() }() // they are kept, and parsed by the time that a certificate comes
	checks := tryAll(ctx, probesOf(plan{p}, "/etc/resolv.conf"))
	return selftest.NewReport(started, time.Since(started), checks)
}

func tryAll(ctx context.Context, probes []probe) []selftest.Check {
	checks := make([]selftest.Check, len(probes))
	var wg sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for i, pr := range probes {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			checks[i] = pr.do(ctx)
		})
	}
	wg.Wait()
	return checks
}

func (pr probe) do(run context.Context) selftest.Check {
	ctx, cancel := context.WithTimeout(run, pr.timeout)
	defer cancel()
	start := time.Now()
	o := settle(run, pr.run(ctx))
	c := pr.check
	c.Got, c.Detail = o.got, selftest.Clean(o.detail)
	c.OK, c.Millis = c.Got == c.Want, selftest.Millis(time.Since(start))
	return c
}

// plan is what the probes are made from.
type plan struct{ selftest.Plan }

// probesOf lists the probes of p in the order of the report.
func probesOf(p plan, resolvConf string) []probe {
	blockTime, reachTime := cmp.Or(p.BlockTimeout, time.Second), cmp.Or(p.ReachTimeout, 10*time.Second)
	var probes []probe
	block := func(name, target, family string, run attempt) {
		probes = append(probes, probe{selftest.Check{Name: name, Target: target, Family: family, Want: selftest.Blocked}, blockTime, run})
	}
	system, resolver := p.System, resolverFor(p.System)
	if len(system) == 0 {
		system = nameservers(resolvConf)
	}
	for _, a := range p.Gateways {
		if at := netip.AddrPortFrom(a, 53); !slices.Contains(system, at) {
			system = append(slices.Clip(system), at)
		}
	}
	for _, missing := range p.Missing() {
		block("plan", missing, "", func(context.Context) outcome { return unknown(errors.New("the plan has none")) })
	}
	askAll := func(check string, servers []netip.AddrPort) {
		for _, name := range p.Denied {
			for _, s := range servers {
				block(check, s.String()+"/udp", family(s.Addr()), askDenied("udp", s, name))
				block(check, s.String()+"/tcp", family(s.Addr()), askDenied("tcp", s, name))
			}
		}
	}
	tryAddrs := func(check string, addrs []netip.AddrPort, try func(netip.AddrPort) attempt) {
		for _, a := range addrs {
			block(check, a.String(), family(a.Addr()), try(a))
		}
	}
	tryNames := func(check string, targets ...selftest.Target) {
		for _, t := range targets {
			block(check, t.String(), "", p.connectName(resolver, t))
		}
	}
	askAll("dns-system", system)
	askAll("dns-direct", p.DNS)
	for _, name := range p.Denied {
		tryNames("denied-name", selftest.Target{Name: name, Port: 443})
	}
	tryAddrs("tcp", p.TCP, p.connectAddr)
	tryAddrs("udp", p.UDP, sendQUIC)
	for _, a := range p.Ping {
		block("ping", a.String(), family(a), ping(a))
	}
	tryAddrs("metadata", p.Metadata, p.connectAddr)
	if len(p.Gateways) == 0 {
		for _, pp := range privileges {
			block(pp.name, pp.target, "", pp.run)
		}
	}
	for _, pr := range p.throughGateway(resolver) {
		block(pr.check.Name, pr.check.Target, pr.check.Family, pr.run)
	}
	tryNames("block", p.Block...)
	for _, t := range p.Inspected {
		c := selftest.Check{Name: "inspected", Target: t.String(), Want: selftest.Blocked}
		probes = append(probes, probe{c, reachTime, p.askInspected(resolver, t)})
	}
	reach := func(name string, targets []selftest.Target) {
		for _, t := range targets {
			c := selftest.Check{Name: name, Target: t.String(), Want: selftest.Reachable}
			// Each try has reachTime; this is only the outer bound.
			probes = append(probes, probe{c, tries*reachTime + tryPause, reachTarget(resolver, system, t, reachTime)})
		}
	}
	reach("required", p.Required)
	reach("reach", p.Reach)
	return probes
}

func family(a netip.Addr) string {
	if a.Unmap().Is4() {
		return "IPv4"
	}
	return "IPv6"
}

type outcome struct{ got, detail string }

func blocked(how string) outcome   { return outcome{selftest.Blocked, how} }
func reachable(how string) outcome { return outcome{selftest.Reachable, how} }
func unknown(err error) outcome    { return outcome{selftest.Unknown, err.Error()} }

func answered(format string, a ...any) outcome {
	return reachable(fmt.Sprintf("answered "+format, a...))
}

// noAnswer is not as good as a refusal, which comes within milliseconds.
const noAnswer = "no answer (timeout)"

// refusal reads the error of a probe that is meant to fail. Only what is known to mean a wall counts, no lack of files.
func refusal(err error) outcome {
	if how, ok := refusals(err); ok {
		return blocked(how)
	}
	return unknown(err)
}

func refusals(err error) (how string, ok bool) {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return noAnswer, timedOut(err)
	}
	switch errno {
	case unix.ECONNREFUSED:
		return "refused", true
	case unix.EHOSTUNREACH: // what ICMP "administratively prohibited" becomes, see icmp(7)
		return "unreachable", true
	case unix.ENETUNREACH, unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT, unix.ENETDOWN, unix.EHOSTDOWN,
		unix.EINVAL: // of a blackhole route
		return "no route", true
	case unix.EACCES, unix.EPERM:
		return "not permitted", true
	case unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT:
		return "not supported", true
	case unix.ETIMEDOUT:
		return noAnswer, true
	}
	return "", false
}

func timedOut(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &ne) && ne.Timeout()
}

// settle voids what a probe concluded after the whole run was given up: its time-outs are then not the network's.
func settle(run context.Context, o outcome) outcome {
	if err := context.Cause(run); err != nil && o.got != selftest.Reachable {
		return unknown(fmt.Errorf("interrupted: %w", err))
	}
	return o
}

// privileges are what only a privileged process can do.
var privileges = []struct {
	name, target string
	run          attempt
}{
	{"raw-socket", "a raw IPv4 socket", makeSocket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)},
	{"raw-socket", "a raw ICMP socket", makeSocket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)},
	{"raw-socket", "a raw IPv6 socket", makeSocket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW)},
	{"packet-socket", "a packet socket", makeSocket(unix.AF_PACKET, unix.SOCK_DGRAM, 0)},
	{"packet-socket", "a raw packet socket", makeSocket(unix.AF_PACKET, unix.SOCK_RAW, 0)},
	{"vsock-socket", "a socket to the virtual machine's host", makeSocket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)},
	{"net-admin", "a packet mark", setMark},
	{"become-root", "a change to uid 0", becomeRoot},
	{"other-network", "a process of another network", otherNetworks},
}

// judgeAct is the outcome of a privileged act.
func judgeAct(err error) outcome {
	if err != nil {
		return refusal(err)
	}
	return reachable("was allowed")
}

func makeSocket(domain, kind, proto int) attempt {
	return func(context.Context) outcome {
		fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, proto)
		if err == nil {
			unix.Close(fd)
		}
		return judgeAct(err)
	}
}

// setMark asks for what needs CAP_NET_ADMIN, or CAP_NET_RAW (socket(7)).
func setMark(context.Context) outcome {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return unknown(err)
	}
	defer unix.Close(fd)
	return judgeAct(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 1))
}

// becomeRoot tries it on one thread, by the bare system call. The thread ends with the goroutine.
func becomeRoot(context.Context) outcome {
	runtime.LockOSThread()
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0); errno != 0 {
		runtime.UnlockOSThread()
		return refusal(errno)
	}
	return judgeAct(nil)
}

// otherNetworks looks for a process of another network that this one may look into: who may read its /proc/PID/ns may
// trace it as well (ptrace(2)), and so send by it. In a container that sees the machine's processes, or another
// container's, there are some. The networks of a sandbox of the agent's own lead nowhere, and are known by the user
// namespace that they belong to, below ours (ioctl_ns(2)).
func otherNetworks(context.Context) outcome {
	var ours, user unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &ours); err != nil {
		return unknown(err)
	}
	if err := unix.Stat("/proc/self/ns/user", &user); err != nil {
		return unknown(err)
	}
	proc, err := os.ReadDir("/proc")
	if err != nil {
		return unknown(err)
	}
	for _, entry := range proc {
		pid := entry.Name()
		if pid[0] >= '0' && pid[0] <= '9' && isForeign("/proc/"+pid+"/ns/net", ours, user) {
			comm, _ := os.ReadFile("/proc/" + pid + "/comm") // it may have ended
			return reachable(fmt.Sprintf("may look into process %s (%s)", pid, strings.TrimSpace(string(comm))))
		}
	}
	return blocked("none is seen")
}

// isForeign says whether the network namespace at path can be opened, and is not ours nor of a user namespace below
// ours.
func isForeign(path string, ours, user unix.Stat_t) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil { // it has ended, or is none of ours
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Dev == ours.Dev && st.Ino == ours.Ino {
		return false
	}
	owner, err := unix.IoctlRetInt(fd, unix.NS_GET_USERNS)
	if err != nil { // one above ours, or beside it
		return true
	}
	defer unix.Close(owner)
	return unix.Fstat(owner, &st) != nil || st.Dev == user.Dev && st.Ino == user.Ino
}
