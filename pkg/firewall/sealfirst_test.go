package firewall

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
)

// E69: when the kernel is asked for what else plans need, it is sealed already.
func TestKernelSealFirst(t *testing.T) {
	if !onBackends(t) {
		return
	}
	l := newLab(t)
	l.serve(443)
	must(t, reach("tcp", at(far4, 443), agentUID))
	var came []string
	run := func(ctx context.Context, p Program) ([]byte, []byte, error) {
		switch text := string(p.Stdin); {
		case strings.Contains(text, ":"+prefixXT+"p-"):
			came = append(came, "agent-init.probe")
		case strings.Contains(text, ":"+prefixXT+"output"):
			came = append(came, "agent-init")
		}
		return runPlain(ctx, p)
	}
	tables := tablesMade(t)
	f := open(t, Options{Owner: true, Seal: true, Run: run})
	if f.Backend == "nftables" {
		came = tables()
	}
	if came = slices.Compact(came); len(came) < 2 || came[0] != "agent-init" || came[1] != "agent-init.probe" {
		t.Errorf("in this order there came: %q", came)
	}
	for _, a := range []netip.Addr{far4, far6} {
		refused(t, "tcp", at(a, 443), agentUID)
		refused(t, "udp", at(a, 443), 0)
	}
}

// tablesMade returns what lists the tables that nf_tables was given since. The kernel tells of each before it answers
// who gave it.
func tablesMade(t *testing.T) func() []string {
	fd, err := nfnetlink.Socket()
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20))
	must(t, unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)}))
	return func() (names []string) {
		for buf := make([]byte, 1<<20); ; {
			n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EAGAIN) {
				return names
			}
			must(t, err)
			must(t, nfnetlink.EachMessage(buf[:n], func(typ uint16, data []byte) error {
				if typ != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE {
					return nil
				}
				m, err := nfnetlink.ParseAttrs(data[4:])
				names = append(names, m.String(unix.NFTA_TABLE_NAME))
				return err
			}))
		}
	}
}

// E70: where the seal goes but not what else plans need, all stays sealed; and another backend takes over if it may.
func TestKernelSealedThoughProbeFails(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	l.serve(443)
	must(t, reach("tcp", at(far4, 443), agentUID))
	shut := func() {
		t.Helper()
		for _, a := range []netip.Addr{far4, far6, other4, other6} {
			refused(t, "tcp", at(a, 443), agentUID)
			refused(t, "udp", at(a, 443), 0)
		}
	}
	// The kernel gives no owner to a table that had none.
	must(t, nftScript(t, "add table inet agent-init.probe"))
	if _, err := Open(ctx, Options{Backend: "nftables", Owner: true, Seal: true}); !errors.Is(err, nfnetlink.ErrUnsupported) {
		t.Fatalf("the probe did not fail as it should: %v", err)
	}
	shut()
	if out, err := exec.Command("nft", "list", "table", "inet", "agent-init").CombinedOutput(); err != nil {
		t.Errorf("the seal is gone: %v: %s", err, out)
	}
	f := open(t, Options{Backend: "auto", Owner: true, Seal: true})
	if !strings.HasPrefix(f.Backend, "xtables") || !strings.Contains(f.Why, "probe nf_tables") {
		t.Errorf("the backend is %s: %s", f.Backend, f.Why)
	}
	shut()
	must(t, nftScript(t, "delete table inet agent-init.probe"))
	apply(t, f, Config{Allow: []Entry{{Prefix: single(far4), Proto: unix.IPPROTO_TCP, Port: 443}}})
	must(t, f.Verify(ctx))
	reached(t, "tcp", at(far4, 443), agentUID)
	refused(t, "tcp", at(other4, 443), agentUID)
	leftovers(t, f.Backend)
}
