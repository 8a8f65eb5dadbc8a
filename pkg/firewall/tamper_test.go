package firewall

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// E67: whatever root does to the rules, Verify tells and Repair mends.
func TestKernelTamper(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := open(t, Options{Backend: "nftables"})
	must(t, nftScript(t, "add table inet other\nadd chain inet other c"))
	if err := f.Verify(ctx); err == nil {
		t.Error("verified before anything was applied")
	}
	c := Config{
		GuardUID: guardUID, GuardGID: guardGID, DropGroup: group, DNSPort4: 1, DNSPort6: 1,
		Upstreams: []netip.AddrPort{at(other4, 53)},
		Allow:     []Entry{{Prefix: single(far4), Proto: unix.IPPROTO_TCP, Port: 443}, {Prefix: netip.MustParsePrefix("2001:db8::/48"), Proto: unix.IPPROTO_TCP, Port: 443}},
		Inbound:   []Entry{{Proto: unix.IPPROTO_UDP, Port: 3000}},
	}
	apply(t, f, c, leaseOf(other4, unix.IPPROTO_TCP, 443, time.Hour))
	must(t, f.Verify(ctx))
	p, err := NewPlan(c)
	must(t, err)
	var deny, allow string
	for _, s := range p.Sets {
		switch {
		case strings.HasPrefix(s.Name, "deny4"):
			deny = s.Name
		case strings.HasPrefix(s.Name, "allow6"):
			allow = s.Name
		}
	}
	changes, err := f.Watch(ctx)
	must(t, err)
	for _, x := range []struct{ script, want string }{
		{"insert rule inet agent-init output accept", "chain output has other rules"},
		{"add rule inet agent-init refuse accept", "chain refuse has other rules"},
		{"flush chain inet agent-init input", "chain input has other rules"},
		{"flush chain inet agent-init to-guard", "chain to-guard has other rules"},
		{"add chain inet agent-init output { policy accept; }", "chain output has"},
		{"add chain inet agent-init forward { policy accept; }", "chain forward has"},
		{"add chain inet agent-init extra { type filter hook output priority 5; }", "chain extra is foreign"},
		{"delete element inet agent-init " + deny + " { 169.254.0.0/16 . 0-255 . 0-65535 }", "lacks 1"},
		{"add element inet agent-init " + allow + " { ::/1 . udp . 0-65535 }", "has 1 foreign"},
		{"flush set inet agent-init " + deny, "lacks 5"},
		{"add set inet agent-init extra { type ipv4_addr; }", "set extra is foreign"},
		{"add chain inet agent-init extra\nadd rule inet agent-init output jump extra", "extra"},
		{"delete table inet agent-init", "the table is gone"},
		{"delete table inet agent-init\nadd table inet agent-init { flags dormant; }", "table flags"},
		{"delete table inet agent-init\nadd table inet agent-init\nadd chain inet agent-init output { type filter hook input priority 0; }", "chain output has"},
		{"delete table inet agent-init\nadd table inet agent-init\nadd set inet agent-init lease4 { type ipv4_addr; }", "chain forward is gone"},
		{"flush ruleset\nadd table inet other", "the table is gone"},
	} {
		select {
		case <-changes: // of the one before
		default:
		}
		if err := nftScript(t, x.script); err != nil {
			t.Errorf("%s: %v", x.script, err)
			continue
		}
		select {
		case <-changes:
		case <-time.After(90 * time.Second):
			t.Errorf("%s: nobody told", x.script)
		}
		if err := f.Verify(ctx); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: verify says %v, not %q", x.script, err, x.want)
		}
		if err := f.Repair(ctx); err != nil {
			t.Errorf("%s: repair: %v", x.script, err)
		}
		if err := f.Verify(ctx); err != nil {
			t.Errorf("%s: after repair: %v", x.script, err)
		}
	}
	if out, err := exec.Command("nft", "list", "table", "inet", "other").CombinedOutput(); err != nil {
		t.Errorf("the foreign table: %v %s", err, out)
	}
}

// What this process does itself is no news.
func TestKernelWatchIgnoresOurs(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := open(t, Options{})
	apply(t, f, Config{})
	changes, err := f.Watch(ctx)
	must(t, err)
	if backendInUse() == "nftables" {
		apply(t, f, Config{DNSPort4: 1}) // another process would do it for the others
	}
	for range 100 {
		must(t, f.Lease(ctx, []Lease{leaseOf(far4, unix.IPPROTO_TCP, 443, time.Minute)}))
	}
	select {
	case <-changes:
		t.Error("our own change was told")
	case <-time.After(4 * settle):
	}
	must(t, nftScript(t, "add table ip6 another"))
	if _, ok := <-changes; !ok {
		t.Error("the watch ended")
	}
	cancel()
	for range changes { // until it is closed
	}
}

// E67, E71: with the owner flag no other process changes the rules; when the
// owner is killed they stay, closed; and the next one takes them over.
func TestKernelOwner(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	ctx := context.Background()
	if os.Getenv("FIREWALL_TEST_OWNER") == "1" {
		f := open(t, Options{Owner: true, Backend: "nftables"})
		must(t, f.Seal(ctx))
		apply(t, f, Config{Allow: []Entry{{Prefix: single(other4), Proto: unix.IPPROTO_TCP, Port: 443}}}, leaseOf(other6, unix.IPPROTO_TCP, 443, time.Hour))
		must(t, f.Verify(ctx))
		fmt.Println("applied")
		time.Sleep(time.Hour) // until killed; an empty select is a deadlock to the runtime, which ends the process
		runtime.KeepAlive(f)  // collected, its socket is closed, and with that the table has no owner
	}
	l := newLab(t)
	l.serve(443)
	child := exec.Command("/proc/self/exe", "-test.run=^TestKernelOwner$")
	child.Env = append(os.Environ(), "FIREWALL_TEST_OWNER=1")
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	defer func() { child.Process.Kill(); child.Wait() }()
	for sc := bufio.NewScanner(out); ; {
		if !sc.Scan() {
			t.Fatal("the owner ended early")
		}
		if sc.Text() == "applied" {
			break
		}
	}
	check := func() {
		t.Helper()
		reached(t, "tcp", at(other4, 443), agentUID)
		reached(t, "tcp", at(other6, 443), agentUID)
		refused(t, "tcp", at(far4, 443), agentUID)
		refused(t, "tcp", at(far6, 443), 0)
	}
	check()
	for _, script := range []string{
		"flush table inet agent-init", "delete table inet agent-init", "insert rule inet agent-init output accept",
		"add element inet agent-init lease4 { 192.0.2.1 . tcp . 443 timeout 1h }",
		"add chain inet agent-init output { policy accept; }",
	} {
		if err := nftScript(t, script); err == nil {
			t.Errorf("another process could: %s", script)
		}
	}
	nftScript(t, "flush ruleset")
	check()
	second := open(t, Options{Owner: true, Backend: "nftables"})
	p, err := NewPlan(Config{GuardUID: guardUID, GuardGID: guardGID})
	must(t, err)
	if err := second.Seal(ctx); err == nil {
		t.Error("a second owner sealed")
	}
	if err := second.Apply(ctx, p, nil); err == nil {
		t.Error("a second owner applied")
	}
	if _, err := Open(ctx, Options{Owner: true, Seal: true, Backend: "nftables"}); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a third opened, and sealed first: %v", err)
	}
	check()

	must(t, child.Process.Kill())
	child.Wait()
	check()
	must(t, second.Seal(ctx)) // now it is free
	check()
	if err := nftScript(t, "flush table inet agent-init"); err == nil {
		t.Error("the rules were adopted, but another process could change them")
	}
	must(t, second.Apply(ctx, p, nil))
	must(t, second.Verify(ctx))
	refused(t, "tcp", at(other4, 443), agentUID)
	reached(t, "tcp", at(other6, 443), agentUID) // the lease is kept
	must(t, second.Close())

	// One that doesn't want to own takes what an owner left, and the reverse.
	third := open(t, Options{Backend: "nftables"})
	must(t, third.Seal(ctx))
	must(t, third.Apply(ctx, p, nil))
	must(t, third.Verify(ctx))
	must(t, nftScript(t, "delete table inet agent-init"))
	must(t, third.Repair(ctx))
	fourth := open(t, Options{Owner: true, Backend: "nftables"})
	must(t, fourth.Seal(ctx))
	if err := nftScript(t, "flush table inet agent-init"); err == nil {
		t.Error("the rules were not adopted")
	}
	refused(t, "tcp", at(far4, 443), agentUID)
}
