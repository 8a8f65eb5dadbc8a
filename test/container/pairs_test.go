package container

import (
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// choices are the options of the README's run line, and what each may be.
var choices = []struct {
	name  string
	among []string
}{
	{"user", []string{"1000 owns the workspace", "HOST_UID is 1234", "1234 owns the workspace"}},
	{"root", []string{"writable", "read-only"}},
	{"port", []string{"none", "published"}},
	{"home", []string{"of the container", "on a volume"}},
	{"session", []string{"none", "always"}},
	{"key", []string{"in a file", "in a variable", "none"}},
}

// together are rows of choices in which each pair of two choices stands at least once.
func together() (rows []map[string]string) {
	type pair [4]string
	pairsOf := func(row map[string]string) (out []pair) {
		for i, a := range choices {
			for _, b := range choices[i+1:] {
				out = append(out, pair{a.name, row[a.name], b.name, row[b.name]})
			}
		}
		return out
	}
	all := []map[string]string{{}}
	for _, c := range choices {
		var longer []map[string]string
		for _, row := range all {
			for _, value := range c.among {
				next := maps.Clone(row)
				next[c.name] = value
				longer = append(longer, next)
			}
		}
		all = longer
	}
	left := map[pair]bool{}
	for _, row := range all {
		for _, p := range pairsOf(row) {
			left[p] = true
		}
	}
	news := func(row map[string]string) (n int) {
		for _, p := range pairsOf(row) {
			if left[p] {
				n++
			}
		}
		return n
	}
	for len(left) > 0 {
		best := slices.MaxFunc(all, func(a, b map[string]string) int { return news(a) - news(b) })
		rows = append(rows, best)
		for _, p := range pairsOf(best) {
			delete(left, p)
		}
	}
	return rows
}

const pairsKey = "sk-ant-the-real-one-0123456789"

// testPairs: the options of the README's run line hold together, each with each of the others.
func testPairs(t *testing.T, e *engine, n *internet) {
	for i, row := range together() {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			t.Logf("%v", row)
			testTogether(t, e, n, row)
		})
	}
}

// pairsCommand is what the agent does: it writes where it may, and serves.
const pairsCommand = `mkdir -p ~/.claude && touch /workspace/written ~/written ~/.claude/written && echo written
exec perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalPort => 3000, Listen => 5, ReuseAddr => 1) or die; while ($c = $s->accept) { print $c "hello"; close $c }'`

func testTogether(t *testing.T, e *engine, n *internet, row map[string]string) {
	name, workspace, uid := e.name(t), t.TempDir(), 1000
	options := args([]string{"run", "-d", "--name", name, "--security-opt=no-new-privileges", "-v", workspace + ":/workspace"}, privileges(), agent(t, n))
	if row["user"] != "1000 owns the workspace" {
		uid = 1234
		options = append(options, "--cap-add=CHOWN")
	}
	if row["user"] == "HOST_UID is 1234" {
		options = append(options, "-e", "HOST_UID=1234", "-e", "HOST_GID=1234")
	}
	if err := os.Chown(workspace, uid, uid); err != nil {
		t.Fatal(err)
	}
	volume := e.unique(t)
	if row["home"] == "on a volume" {
		t.Cleanup(func() { e.docker("volume", "rm", volume) })
		options = append(options, "-v", volume+":/home/agent/.claude", "-v", volume+"-grants:/var/lib/agent-init")
		t.Cleanup(func() { e.docker("volume", "rm", volume+"-grants") })
	}
	if row["root"] == "read-only" {
		options = append(options, "--read-only", "--tmpfs", "/tmp", "--tmpfs", "/run:mode=755", "--tmpfs", "/var/log/agent-init:mode=755",
			"--tmpfs", fmt.Sprintf("/home/agent:uid=%d,gid=%d", uid, uid))
	}
	if row["port"] == "published" {
		options = append(options, "-p", "127.0.0.1::3000", "-e", "AGENT_INIT_INBOUND=3000")
	}
	if row["session"] == "always" {
		options = append(options, "-e", "AGENT_INIT_SESSION=always")
	}
	switch row["key"] {
	case "in a file":
		path := filepath.Join(t.TempDir(), "anthropic")
		if err := os.WriteFile(path, []byte(pairsKey+"\n"), 0o400); err != nil {
			t.Fatal(err)
		}
		options = append(options, "-v", path+":/run/secrets/anthropic:ro")
	case "in a variable":
		options = append(options, "-e", "ANTHROPIC_API_KEY="+pairsKey)
	}
	e.must(t, append(options, e.claude, "bash", "-c", pairsCommand)...)
	exec := func(command ...string) result { return e.docker(args([]string{"exec", name}, command)...) }
	asAgent := func(command string) result {
		return exec("agent-init", "exec", "--", "sh", "-c", command)
	}
	eventually(t, "healthy", time.Minute, func() bool {
		return exec("agent-init", "status", "--quiet").code == 0 || e.must(t, "inspect", "--format", "{{.State.Running}}", name) == "false"
	})
	if r := exec("agent-init", "status"); r.code != 0 {
		t.Fatalf("status: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}

	// The user, and where it may write.
	if r := asAgent("id -u; id -g; touch ~/.claude/more ~/more /workspace/more && echo wrote"); r.stdout != fmt.Sprintf("%d\n%d\nwrote\n", uid, uid) {
		t.Errorf("as the agent: %q %s", r.stdout, r.stderr)
	}
	eventually(t, "the agent has written", time.Minute, func() bool {
		_, err := os.Stat(filepath.Join(workspace, "written"))
		return err == nil || t.Failed()
	})
	if row["home"] == "on a volume" {
		if r := e.docker("run", "--rm", "--network=none", "--entrypoint", "/bin/ls", "-v", volume+":/v:ro", e.base, "/v"); !strings.Contains(r.stdout, "more\n") {
			t.Errorf("on the volume: %q %s", r.stdout, r.stderr)
		}
	}

	// The key, which the agent has not.
	status := exec("agent-init", "status").stdout
	if logsIn := strings.Contains(status, "holds what it logs in with"); logsIn != (row["key"] == "none") {
		t.Errorf("with a key %s, status says:\n%s", row["key"], status)
	}
	if r := asAgent("env; cat /run/secrets/anthropic /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; true"); r.code != 0 || strings.Contains(r.stdout, pairsKey) {
		t.Errorf("the agent finds the key (exit %d): %s", r.code, r.stderr)
	}

	// Sessions.
	if r := exec("agent-init", "sessions"); (r.code == 0) != (row["session"] == "always") {
		t.Errorf("sessions: exit %d %s%s", r.code, r.stdout, r.stderr)
	}

	// The port, as who publishes it connects.
	at := e.must(t, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", name) + ":3000"
	said := func() (text string) {
		_ = inside(e.netns, func() error {
			conn, err := net.DialTimeout("tcp", at, 10*time.Second)
			if err == nil {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				data, _ := io.ReadAll(conn)
				text = string(data)
			}
			return err
		})
		return text
	}
	if row["port"] == "published" {
		eventually(t, "what listens inside answers", time.Minute, func() bool { return said() == "hello" })
	} else if text := said(); text != "" {
		t.Errorf("a port that was not asked for answers %q", text)
	}
}
