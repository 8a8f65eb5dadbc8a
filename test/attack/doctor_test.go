package attack

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// doctor returns what doctor finds that is not well, by check.
func (w *world) doctor() (ills map[string]string, code int) {
	w.Helper()
	r := w.root("agent-init", "doctor", "--json")
	var d struct {
		Findings []struct{ Check, Result, Detail, Fix string }
	}
	if err := json.Unmarshal([]byte(r.Stdout), &d); err != nil {
		w.Fatalf("doctor: %v\n%s", err, r)
	}
	ills = map[string]string{}
	for _, f := range d.Findings {
		if f.Result != "pass" {
			ills[f.Check] += f.Result + ": " + f.Detail + " | " + f.Fix + "\n"
		}
	}
	return ills, r.Code
}

// TestDoctor: a well container has no ills, and each of these is found.
func TestDoctor(t *testing.T) {
	lab.Require(t)
	t.Run("well", func(t *testing.T) {
		w := confine(t, "ok.test\n", lab.BoxOptions{NoNewPrivs: true})
		w.works("http", "https://ok.test/")
		if ills, code := w.doctor(); code != 0 || len(ills) != 0 {
			t.Errorf("it is ill: %d, %v", code, ills)
		}
		if r := w.agentRuns("doctor"); r.Code != 77 || !strings.Contains(r.Stderr, "remedy:") {
			t.Errorf("as the agent: %s", r)
		}
	})
	t.Run("ill", func(t *testing.T) {
		sock := filepath.Join(t.TempDir(), "docker.sock")
		l, err := net.Listen("unix", sock)
		must(t, err)
		defer l.Close()
		box := lab.New(t, lab.Options{})
		box.DNS.SetAddrs("api.openai.com", "45.30.50.1")
		const key = "sk-canary-of-doctor"
		w := confineIn(t, box, "ok.test\napi.openai.com\n", lab.BoxOptions{
			Env:   []string{"OPENAI_API_KEY=" + key},
			Caps:  append(lab.DefaultCaps(), "NET_RAW"),
			Binds: []lab.Bind{{Source: filepath.Dir(sock), Target: "/var/run/engine", Writable: true}, {Source: sock, Target: "/etc/docker.sock", Writable: true}},
		})
		w.blocked("resolve", "dns.google")
		must(t, w.box.WriteFile("/etc/agent-init/allowlist.txt", []byte("*.com\n"), 0o644))
		if !eventually(20*time.Second, func() bool { _, code := w.status(); return code != 0 }) {
			t.Fatal("the bad policy is not noticed")
		}
		ills, code := w.doctor()
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
		w := start(t, "ok.test\n", lab.BoxOptions{NoNewPrivs: true}, "sleep", "infinity")
		before := rules(t, w.box)
		if ills, code := w.doctor(); code != 1 || len(ills) != 1 || !strings.Contains(ills["agent-init"], "has not confined") {
			t.Errorf("it is ill: %d, %v", code, ills)
		}
		if after := rules(t, w.box); after != before {
			t.Errorf("doctor has left rules:\n%s", after)
		}
	})
}
