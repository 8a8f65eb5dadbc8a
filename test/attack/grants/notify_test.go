package grants

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// hooks is a server of webhooks.
type hooks struct {
	mu     sync.Mutex
	bodies []string
	answer func(w http.ResponseWriter)
}

func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bodies = append(h.bodies, r.Method+" "+r.URL.Path+" "+string(body))
	if h.answer != nil {
		h.answer(w)
	}
}

func (h *hooks) got() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.bodies...)
}

func (h *hooks) answers(answer func(http.ResponseWriter)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = answer
}

// TestWebhook: the broker tells a webhook what the agent asks for. The agent neither reaches its host, nor has the
// broker call it, nor learns the credential; and nothing that the host answers leads anywhere else.
func TestWebhook(t *testing.T) {
	lab.Require(t)
	const secret = "T000-canary-B000"
	l := lab.New(t, lab.Options{})
	var h hooks
	l.DNS.SetAddrs("hooks.example.com", "45.30.50.7", "2a0f:30::57")
	l.Web.Handle("hooks.example.com", &h)
	w := rig.ConfineIn(t, l, "ok.test\n", lab.BoxOptions{Files: []lab.File{
		{Path: "/etc/agent-init/policy.yaml", Data: []byte("notify:\n  command: [/etc/agent-init/tell]\n  webhook: {to: 'https://hooks.example.com/services/{}', credential: 'file:/run/secrets/hook'}\n")},
		{Path: "/etc/agent-init/tell", Data: []byte("#!/bin/sh\ngrep ^Cap /proc/self/status | tr -d '[:space:]'; grep NoNewPrivs /proc/self/status; cat /run/secrets/hook; umask 022; id -u > /tmp/told; exit 3\n"), Mode: 0o755},
		{Path: "/run/secrets/hook", Data: []byte(secret + "\n"), Mode: 0o400},
		{Path: rig.Bundle, Data: l.CA.PEM},
	}})
	ask := func(target string) {
		t.Helper()
		if r := w.Launch("agent-init", "request", target, "--reason", "say \"hello\"\x1b[2J").Wait(0); r.Code == 0 {
			t.Error("a reason with an escape sequence was taken")
		}
		if r := w.Launch("agent-init", "request", target, "--reason", `say "hello"`).Wait(0); r.Code != 0 {
			t.Fatal(r)
		}
	}
	ask("new.test")
	if !rig.Eventually(0, func() bool { return len(h.got()) > 0 }) {
		t.Fatalf("nobody was told: %s", w.Agent.Stderr())
	}
	const want = "POST /services/" + secret + ` {"version":1,"event":"requested","text":"request 1: new.test, \"say \\\"hello\\\"\"","request":{"number":1,"kind":"request","target":"new.test","reason":"say \"hello\"","uid":1000,`
	if got := h.got()[0]; !strings.HasPrefix(got, want) {
		t.Errorf("told %s", got)
	}
	w.Audited("the call", func(e rig.Event) bool { return e.Reason == "notify: hooks.example.com was told of request 1" })
	none := strings.Repeat("0", 16)
	held := "notify: /etc/agent-init/tell: exit 3: CapInh:" + none + "CapPrm:" + none + "CapEff:" + none + "CapBnd:" + none + "CapAmb:" + none + "NoNewPrivs: 1 "
	w.Audited("what the command holds", func(e rig.Event) bool { return strings.HasPrefix(e.Reason, held) })

	for target, allowed := range map[string]bool{"https://ok.test/": true, "https://evil.test/": false, "https://hooks.example.com/services/x": false} {
		r := w.Box.Exec(lab.Cmd{Args: []string{"poke", "http", target}, UID: notifyUID(w)})
		if p, err := lab.ParsePoke(r.Stdout); err != nil || p.OK != allowed {
			t.Errorf("the command's uid reaches %s: %s", target, r)
		}
	}
	l.Web.Forget()
	w.Blocked("http", "https://hooks.example.com/services/x")
	w.Blocked("tcp", "45.30.50.7:443")

	h.answers(func(rw http.ResponseWriter) {
		rw.Header().Set("Location", "https://ok.test/stolen")
		rw.WriteHeader(http.StatusTemporaryRedirect)
		_, _ = io.WriteString(rw, "see \x1b[2J "+secret)
	})
	if r := w.Root("agent-init", "grants", "--end", "1"); r.Code != 0 {
		t.Fatal(r)
	}
	w.Audited("a failure", func(e rig.Event) bool {
		return e.Reason == "notify: the webhook was not called: hooks.example.com answered with status 307"
	})
	if got := h.got(); len(got) != 2 || !strings.Contains(got[1], `"event":"decided"`) || !strings.Contains(got[1], `"outcome":"turned down"`) {
		t.Errorf("told %q", got)
	}
	if got := l.Web.Requests("ok.test"); len(got) > 0 {
		t.Errorf("a redirect was followed: %+v", got)
	}
	for _, file := range []string{"/var/log/agent-init/audit.jsonl", "/run/agent-init/status.json", "/run/agent-init/policy.jsonl"} {
		if data, err := w.Box.ReadFile(file); err != nil || strings.Contains(string(data), "canary") {
			t.Errorf("%s has the credential (%v)", file, err)
		}
	}
	if r := w.Launch("agent-init", "status").Wait(0); r.Code != 0 {
		t.Error(r)
	}
}

// notifyUID is the uid that the command of notify has had.
func notifyUID(w *rig.World) uint32 {
	w.Helper()
	data, err := w.Box.ReadFile("/tmp/told")
	rig.Must(w.T, err)
	uid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if rig.Must(w.T, err); uid < 64901 || uid > 64964 {
		w.Fatalf("the command ran as uid %d", uid)
	}
	return uint32(uid)
}
