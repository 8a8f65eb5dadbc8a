package gate

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestPolicyOfRootsGroupRefused: a policy that group 0 may write is refused in each mode, at
// the start and after it, whoever the agent is.
func TestPolicyOfRootsGroupRefused(t *testing.T) {
	l := rig.NewLab(t)
	// As images for OpenShift have it, whose user has any uid, and group 0.
	list := []lab.File{{Path: "/etc/agent-init/allowlist.txt", Data: []byte("ok.test\n"), Mode: 0o664}}
	for _, args := range [][]string{{"run", "--", "echo", "started"}, {"up"}, {"sidecar"}} {
		t.Run(args[0], func(t *testing.T) {
			w := rig.StartIn(t, l, "", lab.BoxOptions{Files: list}, "sleep", "infinity")
			rig.Refused(t, w.Box.Exec(lab.Cmd{Args: append([]string{"agent-init"}, args...)}), 78, "allowlist.txt is writable by group 0 (mode 0664)", "chmod go-w")
		})
	}
	t.Run("reload", func(t *testing.T) {
		w := rig.StartIn(t, l, "ok.test\n", lab.BoxOptions{}, "sleep", "infinity")
		w.Mode = "up"
		if r := w.Root("agent-init", "up"); r.Code != 0 {
			t.Fatalf("agent-init up: %s", r)
		}
		// Somebody makes root's files the group's; the agent, uid 1000 in group 0, writes.
		if r := w.Root("chmod", "g+w", "/etc/agent-init/allowlist.txt"); r.Code != 0 {
			t.Fatal(r)
		}
		r := w.Box.Exec(lab.Cmd{UID: lab.AgentUID, Groups: []uint32{0}, Args: []string{"sh", "-c", "echo ok2.test >>/etc/agent-init/allowlist.txt"}})
		if r.Code != 0 {
			t.Fatalf("the agent could not write it to begin with: %s", r)
		}
		if !rig.Eventually(time.Minute, func() bool { _, code := w.Status(); return code != 0 }) {
			t.Fatal("the status does not show it")
		}
		w.Audited("the refusal", func(e rig.Event) bool {
			return e.Kind == "policy" && e.Verdict == "fault" && strings.Contains(e.Reason, "writable by group 0")
		})
		w.Blocked("resolve", "ok2.test")
		w.Works("http", "https://ok.test/")
	})
}

// TestDeniedInsideOfWrappedBlock: what is denied stays so inside of blocks of IPv6 that carry
// IPv4, for entries by address, which the kernel holds alone.
func TestDeniedInsideOfWrappedBlock(t *testing.T) {
	w := rig.Confine(t, "[64:ff9b::]/96:443\n[2002::]/16:443\n!10.0.0.0/8\n!203.0.113.66\n", lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	for _, a := range []string{"64:ff9b::10.0.0.1", "64:ff9b::203.0.113.66", "2002:a00:1::1", "2002:cb00:7142::1"} {
		w.Refused(open, rig.Toward(netip.MustParseAddr(a).String()), "tcp", rig.Target(a, 443))
		if r := w.Root("agent-init", "explain", rig.Target(a, 443)); !strings.Contains(r.Stdout, "denied by the policy") {
			t.Errorf("explain: %s", r)
		}
	}
	w.Sealed(rig.NotGuards)
	for _, a := range []string{"64:ff9b::203.0.113.67", "2002:cb00:7143::1"} {
		w.Works("tcp", rig.Target(a, 443))
	}
}

// TestEncryptedHelloRefusedByPolicy: a hello that may have another name inside passes by the
// allowed one outside, unless the policy refuses such.
func TestEncryptedHelloRefusedByPolicy(t *testing.T) {
	g := gate(t)
	with := hello(t, "many.test", func(l []extension) []extension {
		return append(l, extension{extensionECH, append([]byte{0, 0, 1, 0, 1, 7, 0, 32}, make([]byte, 32+2)...)})
	})
	g.heard(with)
	if r := g.Root("sh", "-c", "echo 'tls: {ech: refuse}' >/etc/agent-init/policy.yaml && agent-init reload"); r.Code != 0 {
		t.Fatal(r)
	}
	g.unheard(with, "many.test", "encrypted client hello")
	g.heard(hello(t, "many.test", nil))
}
