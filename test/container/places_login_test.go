package container

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testCodexLogin has the browser's callback reach the real Codex, which waits for it on the container's own
// localhost: by the line of docs/agents/codex.md, and in no other way. The engine's namespace is where the browser is.
func testCodexLogin(t *testing.T, e *engine) {
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("inbound: [1455]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	name := e.name(t)
	e.must(t, args([]string{"run", "-d", "--name", name, "-p", "127.0.0.1:11455:1455", "-v", policy + ":/etc/agent-init/policy.yaml:ro"},
		privileges(), []string{e.codex, "codex", "login"})...)
	eventually(t, "Codex waits for the callback", time.Minute, func() bool {
		return e.docker("exec", name, "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/1455").code == 0
	})

	browser := &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, network, addr string) (c net.Conn, err error) {
		err = inside(e.netns, func() (err error) { c, err = net.Dial(network, addr); return err })
		return c, err
	}}}
	callback := func(port string) (string, error) {
		r, err := browser.Get("http://localhost:" + port + "/auth/callback?code=lab&state=wrong")
		if err != nil {
			return "", err
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		return r.Status + " " + string(body), err
	}
	// Published and let in, the port still leads to an interface that Codex does not listen on.
	if said, err := callback("11455"); err == nil {
		t.Errorf("through the published port Codex said %q: docs/agents/codex.md says that it can't", said)
	}

	data, err := os.ReadFile("../../docs/agents/codex.md")
	if err != nil {
		t.Fatal(err)
	}
	_, line, ok := strings.Cut(string(data), "\nsocat ")
	line, _, _ = strings.Cut(line, "\n```")
	if !ok || !strings.Contains(line, " C ") {
		t.Fatal("docs/agents/codex.md has no line with socat")
	}
	bridge := exec.Command("nsenter", "--net="+e.netns, "sh", "-c", "exec socat "+strings.Replace(line, " C ", " "+name+" ", 1))
	bridge.Stderr = os.Stderr
	if err := bridge.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bridge.Process.Kill(); _ = bridge.Wait() })
	eventually(t, "the callback is answered", time.Minute, func() bool {
		said, err := callback("1455")
		if err == nil && !strings.Contains(said, "State mismatch") {
			t.Fatalf("the callback was answered by something else: %q", said)
		}
		return err == nil
	})
}
