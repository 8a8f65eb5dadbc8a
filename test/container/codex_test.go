package container

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCodexStart: Codex is signed in once with each key, and no more where the broker has it; a person's own sign-in stays.
func TestCodexStart(t *testing.T) {
	bin := t.TempDir()
	fake := "#!/bin/sh\n" + `if [ "$1" = login ]; then cat >"$CODEX_HOME/auth.json"; echo login >>"$CODEX_HOME/logins"; else echo "runs $*"; fi` + "\n"
	if err := os.WriteFile(filepath.Join(bin, "codex"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	start := func(home, key string, env ...string) (auth string, logins int) {
		t.Helper()
		cmd := exec.Command("sh", "../../images/codex/start.sh", "resume")
		cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "CODEX_HOME=" + home, "CODEX_API_KEY=" + key}
		cmd.Env = append(cmd.Env, env...)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != "runs resume\n" {
			t.Fatalf("%v\n%s", err, out)
		}
		data, _ := os.ReadFile(filepath.Join(home, "auth.json"))
		log, _ := os.ReadFile(filepath.Join(home, "logins"))
		return strings.TrimSpace(string(data)), strings.Count(string(log), "login")
	}
	home := t.TempDir()
	for n, step := range []struct {
		key, auth string
		logins    int
	}{{"", "", 0}, {"first", "first", 1}, {"first", "first", 1}, {"second", "second", 2}, {"", "second", 2}} {
		if auth, logins := start(home, step.key); auth != step.auth || logins != step.logins {
			t.Errorf("%d: signed in %d times, with %q, want %d and %q", n, logins, auth, step.logins, step.auth)
		}
	}
	if auth, logins := start(home, "", "OPENAI_BASE_URL=http://127.0.0.1:1/openai/v1"); auth != "" || logins != 2 {
		t.Errorf("with a route, it is signed in %d times, with %q", logins, auth)
	}
	start(home, "third")
	since := filepath.Join(home, "auth.json")
	if err := os.WriteFile(since, []byte("a person's, since"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A file's time is the kernel's last tick (current_time of fs/inode.c): both could have been written within one.
	if later := time.Now().Add(time.Second); os.Chtimes(since, later, later) != nil {
		t.Fatal("no time can be set")
	}
	if auth, logins := start(home, "", "OPENAI_BASE_URL=http://127.0.0.1:1/openai/v1"); auth != "a person's, since" || logins != 3 {
		t.Errorf("with a route, the person's later sign-in became %q", auth)
	}
	own := t.TempDir()
	if err := os.WriteFile(filepath.Join(own, "auth.json"), []byte("a person's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if auth, logins := start(own, "", "OPENAI_BASE_URL=http://127.0.0.1:1/openai/v1"); auth != "a person's" || logins != 0 {
		t.Errorf("with a route, the person's sign-in became %q", auth)
	}
	if auth, logins := start(own, "first"); auth != "a person's" || logins != 0 {
		t.Errorf("the person's sign-in became %q", auth)
	}
}
