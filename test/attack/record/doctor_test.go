package record

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestDoctor: a well container has no ills, and each of these is found.
func TestDoctor(t *testing.T) {
	lab.Require(t)
	t.Run("well", func(t *testing.T) {
		w := rig.Confine(t, "ok.test\n", lab.BoxOptions{NoNewPrivs: true})
		w.Works("http", "https://ok.test/")
		if ills, code := w.Doctor(); code != 0 || len(ills) != 0 {
			t.Errorf("it is ill: %d, %v", code, ills)
		}
		if r := w.AgentRuns("doctor"); r.Code != 77 || !strings.Contains(r.Stderr, "remedy:") {
			t.Errorf("as the agent: %s", r)
		}
	})
	t.Run("ill", func(t *testing.T) {
		sock := filepath.Join(t.TempDir(), "docker.sock")
		l, err := net.Listen("unix", sock)
		rig.Must(t, err)
		defer l.Close()
		box := lab.New(t, lab.Options{})
		box.DNS.SetAddrs("api.openai.com", "45.30.50.1")
		const key = "sk-canary-of-doctor"
		w := rig.ConfineIn(t, box, "ok.test\napi.openai.com\n", lab.BoxOptions{
			Env:   []string{"OPENAI_API_KEY=" + key},
			Caps:  append(lab.DefaultCaps(), "NET_RAW"),
			Binds: []lab.Bind{{Source: filepath.Dir(sock), Target: "/var/run/engine", Writable: true}, {Source: sock, Target: "/etc/docker.sock", Writable: true}},
		})
		w.Blocked("resolve", "dns.google")
		rig.Must(t, w.Box.WriteFile("/etc/agent-init/allowlist.txt", []byte("*.com\n"), 0o644))
		if !rig.Eventually(20*time.Second, func() bool { _, code := w.Status(); return code != 0 }) {
			t.Fatal("the bad policy is not noticed")
		}
		ills, code := w.Doctor()
		if code != 1 {
			t.Errorf("exit code %d", code)
		}
		for check, want := range map[string]string{
			"agent-init": "the last reload was refused", "capabilities": "warn: NET_RAW", "privileges": "no-new-privileges", "policy": "*.com",
			"mounts": "/etc/docker.sock is an engine's socket", "DoH": "dns.google",
			"keys": "OPENAI_API_KEY is in the agent's environment, and allowlist.txt:2 allows api.openai.com", // by the policy in force
		} {
			if !strings.Contains(ills[check], want) {
				t.Errorf("%s: want %q in %q", check, want, ills[check])
			}
		}
		if len(ills) != 7 || strings.Contains(fmt.Sprint(ills), key) {
			t.Errorf("also found: %v", ills)
		}
	})
	t.Run("before the start", func(t *testing.T) {
		w := rig.Start(t, "ok.test\n", lab.BoxOptions{NoNewPrivs: true}, "sleep", "infinity")
		before := rig.Rules(t, w.Box)
		if ills, code := w.Doctor(); code != 1 || len(ills) != 1 || !strings.Contains(ills["agent-init"], "has not confined") {
			t.Errorf("it is ill: %d, %v", code, ills)
		}
		if after := rig.Rules(t, w.Box); after != before {
			t.Errorf("doctor has left rules:\n%s", after)
		}
	})
}
