package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// answer is what Direct says.
type answer struct {
	name string
	ok   bool
	err  error
}

// directRig is a rig whose policy allows an address and two names on port 22.
func directRig(t *testing.T, says answer, lines ...string) (r *rig, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	r = newRig(t, func(c *settings) {
		c.Direct = func(context.Context, netip.AddrPort) (string, bool, error) {
			asked.Add(1)
			return says.name, says.ok, says.err
		}
	})
	if len(lines) > 0 {
		r.policy.Store(parsePolicy(t, lines...))
	}
	return r, asked
}

// greeter speaks first, as servers of SSH do, and then echoes.
func greeter(c *net.TCPConn) {
	io.WriteString(c, "hi")
	io.Copy(c, c)
	c.CloseWrite()
}

// passes fails unless bytes go both ways, the server's first.
func passes(t *testing.T, c *net.TCPConn) {
	t.Helper()
	buf := make([]byte, 2)
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "hi" {
		t.Fatalf("read %q, %v", buf, err)
	}
	io.WriteString(c, "yo")
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "yo" {
		t.Fatalf("read %q, %v", buf, err)
	}
}

func TestDirect(t *testing.T) {
	for _, tt := range []struct {
		what   string
		lines  []string
		says   answer
		to     netip.AddrPort
		name   string // recorded
		reason string // of the refusal; "" if it passes
	}{
		{"an address, tls port", []string{"192.0.2.1:443"}, answer{ok: true}, siteTLS, "", ""},
		{"a block, http port", []string{"192.0.2.0/24:80"}, answer{ok: true}, siteWeb, "", ""},
		{"an address, another port", []string{"192.0.2.1:22"}, answer{ok: true}, siteSSH, "", ""},
		{"a name, another port", []string{"ok.test:22"}, answer{name: "ok.test", ok: true}, siteSSH, "ok.test", ""},
		{"not leased", []string{"ok.test:22"}, answer{}, siteSSH, "", "not in the allowlist"},
		{"leased to a name without this port", []string{"ok.test"}, answer{name: "ok.test", ok: true}, siteSSH, "ok.test", "the policy allows it on other ports only"},
		{"leased to a name that is denied", []string{"*.test:22", "!ok.test"}, answer{name: "ok.test", ok: true}, siteSSH, "ok.test", "denied by the policy"},
		{"the keeper knows better", []string{"192.0.2.1:443"}, answer{}, siteTLS, "", refusedRevoked.Error()},
		{"the keeper can't be asked", []string{"192.0.2.1:443"}, answer{err: errors.New("gone")}, siteTLS, "", refusedKeeper.Error()},
		{"denied address", []string{"192.0.2.0/24:22", "!192.0.2.1"}, answer{}, siteSSH, "", "denied by the policy"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			r, asked := directRig(t, tt.says, tt.lines...)
			r.server(tt.to, greeter)
			if tt.reason != "" {
				r.refused(tt.to, "x")
				wantReason(t, r.event(audit.Connect, 0), audit.Deny, tt.reason)
				if r.dials() != 0 {
					t.Error("the gate connected onward")
				}
			} else {
				c := r.connect(tt.to)
				passes(t, c)
				c.Close()
				wantReason(t, r.event(audit.Connect, 0), audit.Allow, "")
			}
			if e := r.event(audit.Connect, 0); e.Name != tt.name {
				t.Errorf("recorded %+v", e)
			}
			if asked.Load() != 1 {
				t.Errorf("asked %d times", asked.Load())
			}
		})
	}
}

// TestDirectLooksInside: where a name can be seen, a lease of the address alone
// opens nothing.
func TestDirectLooksInside(t *testing.T) {
	r, asked := directRig(t, answer{name: "ok.test", ok: true})
	r.echo(r.config())
	r.denied(siteTLS, string(helloFor("evil.test")))
	r.refused(siteTLS, "not tls")
	if asked.Load() != 0 || r.dials() != 0 {
		t.Errorf("asked %d times, connected %d times", asked.Load(), r.dials())
	}
	gone, _ := r.pair("two.test")
	r.policy.Store(parsePolicy(t, "ok.test"))
	r.Recheck() // by the name: the claim of the address is forgotten
	wantReset(t, gone)
	stays, server := r.pair("ok.test")
	r.Recheck()
	io.WriteString(stays, "x")
	if _, err := server.Read(make([]byte, 1)); err != nil {
		t.Errorf("a connection of an allowed name was cut: %v", err)
	}
}

// TestDirectLooksIntoOtherPorts: so it is on a port of which the policy says what the name has there.
func TestDirectLooksIntoOtherPorts(t *testing.T) {
	r, _ := directRig(t, answer{name: "tls.test", ok: true}, "tls.test:8443 tls")
	r.server(site8443, greeter)
	r.refused(site8443, "\x01")
	r.denied(site8443, string(helloFor("evil.test")))
	if r.dials() != 0 {
		t.Error("the gate connected onward")
	}
	c := r.connect(site8443)
	c.Write(helloFor("tls.test"))
	c.CloseWrite()
	r.event(audit.Connect, 2)
	if r.dials() != 1 {
		t.Errorf("the gate connected onward %d times", r.dials())
	}
}

func TestDirectRecheck(t *testing.T) {
	for _, tt := range []struct {
		what  string
		lines []string
		says  answer
		keep  *policy.Policy
		gone  *policy.Policy
	}{
		{"address", []string{"192.0.2.1:22"}, answer{ok: true}, parsePolicy(t, "192.0.2.0/24:22"), parsePolicy(t, "192.0.2.1:443")},
		{"name", []string{"ok.test:22"}, answer{name: "ok.test", ok: true}, parsePolicy(t, "*.test:22"), parsePolicy(t, "ok.test")},
	} {
		t.Run(tt.what, func(t *testing.T) {
			r, _ := directRig(t, tt.says, tt.lines...)
			r.server(siteSSH, greeter)
			c := r.connect(siteSSH)
			passes(t, c)
			r.policy.Store(tt.keep)
			r.Recheck()
			io.WriteString(c, "ok")
			if _, err := io.ReadFull(c, make([]byte, 2)); err != nil {
				t.Fatalf("cut although it is allowed: %v", err)
			}
			r.policy.Store(tt.gone)
			r.Recheck()
			wantReset(t, c)
		})
	}
}
