package firewall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// runPlain lets os/exec wait for the program: nothing else waits for children here.
func runPlain(ctx context.Context, p Program) (stdout, stderr []byte, err error) {
	cmd := exec.CommandContext(ctx, p.Path, p.Args...)
	cmd.Env, cmd.Dir, cmd.Stdin = p.Env, "/", bytes.NewReader(p.Stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.Bytes(), errs.Bytes(), err
}

// iptablesOf runs a program of a variant, as someone else with NET_ADMIN would.
func iptablesOf(t testing.TB, variant string, f plan.Family, what string, stdin string, args ...string) string {
	t.Helper()
	name := map[plan.Family]string{plan.IPv4: "iptables-", plan.IPv6: "ip6tables-"}[f] + variant + what
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		mustrun.Lacks(t, "needs iptables(8), both variants")
	}
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

// iptables runs the variant that the xtables backend is on.
func iptables(t testing.TB, f plan.Family, args ...string) string {
	t.Helper()
	return iptablesOf(t, "legacy", f, "", "", append([]string{"-w"}, args...)...)
}

// lastRule returns the number of the last rule of a chain of filter.
func lastRule(t testing.TB, f plan.Family, chain string) string {
	t.Helper()
	return fmt.Sprint(strings.Count(iptables(t, f, "-S", chain), "\n-A "))
}

// shown is all that iptables and ipset show, less what changes by itself.
func shown(t testing.TB) string {
	t.Helper()
	var out []string
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		for line := range strings.Lines(iptablesOf(t, "legacy", f, "-save", "")) {
			if line[0] == ':' {
				line, _, _ = strings.Cut(line, "[")
			}
			if line[0] != '#' {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	sets := strings.Split(ipsetCommand(t, "save"), "\n")
	for i, line := range sets {
		if strings.HasPrefix(line, "add ") {
			sets[i], _, _ = strings.Cut(line, " timeout ")
		}
	}
	slices.Sort(sets)
	return strings.Join(append(out, sets...), "\n")
}

// E72: 50 times the same, or in turn with another, leaves the same rules, and
// what isn't ours is as it was.
func TestKernelXTApplyAgain(t *testing.T) {
	if !onSome(t, "xtables-legacy") {
		return
	}
	ctx := context.Background()
	engine(t, "legacy")
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		iptables(t, f, "-N", "foreign")
		iptables(t, f, "-A", "foreign", "-p", "tcp", "-j", "ACCEPT")
		iptables(t, f, "-A", "OUTPUT", "-j", "foreign")
		iptables(t, f, "-t", "mangle", "-A", "OUTPUT", "-j", "MARK", "--set-mark", "7")
	}
	ipsetCommand(t, "create", "foreign", "hash:ip")
	theirs := func(s string) string {
		var out []string
		for line := range strings.Lines(s) {
			if !strings.Contains(line, prefixXT) && strings.HasPrefix(line, "-A ") || strings.Contains(line, " foreign ") {
				out = append(out, line)
			}
		}
		slices.Sort(out)
		return strings.Join(out, "")
	}
	before := theirs(shown(t))
	runs := 0
	f := open(t, Options{Run: func(ctx context.Context, p Program) ([]byte, []byte, error) {
		if !strings.HasSuffix(p.Path, "-save") {
			runs++
		}
		return runPlain(ctx, p)
	}})
	a := Config{DropGroup: group, DNSPort4: 1, Allow: []Entry{{Prefix: single(far4), Proto: unix.IPPROTO_TCP, Port: 443}}}
	b := Config{DNSPort6: 2, Deny: []Entry{{Prefix: single(far4)}, {Prefix: single(far6), Proto: unix.IPPROTO_TCP, Port: 0}}}
	apply(t, f, a, leaseOf(far6, unix.IPPROTO_TCP, 1, time.Hour))
	first := shown(t)
	runs = 0
	for range 50 {
		apply(t, f, a)
	}
	if runs > 0 {
		t.Errorf("applying the same plan loaded rules %d times", runs)
	}
	for range 10 {
		apply(t, f, b)
		must(t, f.Verify(ctx))
		apply(t, f, a)
		must(t, f.Verify(ctx))
	}
	if got := shown(t); got != first {
		t.Errorf("after 20 changes:\n%s\nbefore:\n%s", got, first)
	}
	if !strings.Contains(first, "2001:db8::1,tcp:1") {
		t.Error("a lease was lost")
	}
	if got := theirs(first); got != before {
		t.Errorf("foreign rules changed:\n%s\nbefore:\n%s", got, before)
	}
	// Another process that applies the same finds it so, and so does one that
	// seals first.
	second := open(t, Options{})
	must(t, second.Seal(ctx))
	apply(t, second, a)
	must(t, second.Verify(ctx))
	if got := shown(t); got != first {
		t.Errorf("after a restart:\n%s\nbefore:\n%s", got, first)
	}
}

// E67: whatever root does to the rules, Verify tells and Repair mends.
func TestKernelXTTamper(t *testing.T) {
	if !onSome(t, "xtables-legacy") {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	l.serve(9)
	f := open(t, Options{})
	c := Config{
		GuardUID: guardUID, GuardGID: guardGID, DropGroup: group, DNSPort4: 1, DNSPort6: 1,
		Upstreams: []netip.AddrPort{at(other4, 53)},
		Allow:     []Entry{{Prefix: single(other4), Proto: unix.IPPROTO_TCP, Port: 443}, {Prefix: netip.MustParsePrefix("2001:db8::/48"), Proto: unix.IPPROTO_TCP, Port: 443}},
		Inbound:   []Entry{{Proto: unix.IPPROTO_UDP, Port: 3000}},
	}
	iptables(t, plan.IPv4, "-A", "OUTPUT", "-j", "ACCEPT")
	apply(t, f, c, leaseOf(other4, unix.IPPROTO_TCP, 8443, time.Hour))
	must(t, f.Verify(ctx))
	refused(t, "udp", at(far4, 9), 0)
	var deny, allow string
	for _, name := range strings.Fields(ipsetCommand(t, "list", "-n")) {
		switch {
		case strings.Contains(name, "deny4"):
			deny = name
		case strings.Contains(name, "allow6"):
			allow = name
		}
	}
	type change struct {
		what   string
		do     func()
		want   string
		leases bool // are lost
	}
	sets := func(args ...string) func() { return func() { ipsetCommand(t, args...) } }
	rules := func(f plan.Family, args ...string) func() { return func() { iptables(t, f, args...) } }
	changes := []change{
		{"ahead of ours", rules(plan.IPv4, "-I", "OUTPUT", "-j", "ACCEPT"), "-D OUTPUT 2", false},
		{"ahead of ours, IPv6", rules(plan.IPv6, "-I", "INPUT", "-j", "ACCEPT"), "-D INPUT 2", false},
		{"ahead of ours, NAT", rules(plan.IPv4, "-t", "nat", "-I", "OUTPUT", "-p", "udp", "-j", "ACCEPT"), "table nat", false},
		{"into ours", rules(plan.IPv4, "-I", "agent-init-output", "-j", "ACCEPT"), "agent-init-output has other rules", false},
		{"over ours", rules(plan.IPv6, "-R", "agent-init-output", "1", "-j", "ACCEPT"), "first difference at rule 1", false},
		{"out of ours", rules(plan.IPv4, "-D", "agent-init-input", "1"), "agent-init-input has other rules", false},
		{"no jump", rules(plan.IPv4, "-D", "OUTPUT", "-j", "agent-init-output"), "-I OUTPUT 1", false},
		{"another jump", rules(plan.IPv4, "-A", "OUTPUT", "-j", "agent-init-refuse"), "is needed in table filter", false},
		{"policy", rules(plan.IPv4, "-P", "OUTPUT", "ACCEPT"), "policy ACCEPT", false},
		{"policy, IPv6", rules(plan.IPv6, "-P", "FORWARD", "ACCEPT"), "policy ACCEPT", false},
		{"a chain", rules(plan.IPv4, "-N", "agent-init-extra"), "agent-init-extra is foreign", false},
		{"flush", rules(plan.IPv4, "-F"), "has other rules", false},
		{"all", func() {
			for _, table := range []string{"filter", "nat", "mangle"} {
				iptables(t, plan.IPv4, "-t", table, "-F")
				iptables(t, plan.IPv4, "-t", table, "-X")
			}
			iptables(t, plan.IPv4, "-P", "OUTPUT", "ACCEPT")
		}, "is gone", false},
		{"mangle", rules(plan.IPv6, "-t", "mangle", "-F", "agent-init-postrouting"), "agent-init-postrouting has other rules", false},
		{"less denied", sets("del", deny, "169.254.0.0/16"), "lacks 1", false},
		{"nothing denied", sets("flush", deny), "lacks 5", false},
		{"not denied", sets("-exist", "add", deny, "169.254.1.0/24", "nomatch"), "flags", false},
		{"more allowed", sets("add", allow, "8000::/1,udp:9"), "has 1 foreign", false},
		{"a set", sets("create", "agent-init-extra", "hash:ip"), "agent-init-extra is foreign", false},
		{"leases of another make", func() {
			ipsetCommand(t, "create", "x", "hash:ip,port", "maxelem", "5")
			ipsetCommand(t, "swap", "x", "agent-init-lease4")
			ipsetCommand(t, "destroy", "x")
		}, "defined otherwise", true},
		{"smaller leases", func() {
			ipsetCommand(t, "create", "x", "hash:ip,port", "timeout", "60", "maxelem", "500")
			ipsetCommand(t, "add", "x", other4.String()+",tcp:8443", "timeout", "3600")
			ipsetCommand(t, "swap", "x", "agent-init-lease4")
			ipsetCommand(t, "destroy", "x")
		}, "defined otherwise", false},
		{"leases of another type", func() {
			for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
				for _, table := range []string{"filter", "nat"} {
					iptables(t, f, "-t", table, "-F")
				}
			}
			ipsetCommand(t, "destroy", "agent-init-lease4")
			ipsetCommand(t, "create", "agent-init-lease4", "hash:ip")
		}, "are not the plan's", true},
		{"used leases of another type", func() {
			for _, table := range []string{"filter", "nat"} {
				iptables(t, plan.IPv4, "-t", table, "-F")
			}
			ipsetCommand(t, "destroy", "agent-init-lease4")
			ipsetCommand(t, "create", "agent-init-lease4", "hash:net")
			iptables(t, plan.IPv4, "-A", "agent-init-output", "-m", "set", "--match-set", "agent-init-lease4", "dst", "-j", "ACCEPT")
		}, "are not the plan's", true},
	}
	for _, x := range changes {
		x.do()
		if err := f.Verify(ctx); x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s: verify says %v, not %q", x.what, err, x.want)
		}
		if err := f.Repair(ctx); err != nil {
			t.Errorf("%s: repair: %v", x.what, err)
		}
		if err := f.Verify(ctx); err != nil {
			t.Errorf("%s: after repair: %v", x.what, err)
		}
		refused(t, "udp", at(far4, 9), 0)
		leases, err := f.Leased(ctx, anyLease)
		must(t, err)
		if !x.leases && len(leases) != 1 {
			t.Errorf("%s: the leases are %v", x.what, leases)
		}
		must(t, f.Lease(ctx, []Lease{leaseOf(other4, unix.IPPROTO_TCP, 8443, time.Hour)}))
	}
}
