package container

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestContainerPlacesDevcontainer starts what images/devcontainer publishes with the real devcontainer
// client, and looks at it from what "devcontainer exec" and editors start in the container, and from the far side.
func TestContainerPlacesDevcontainer(t *testing.T) {
	d := needDevcontainers(t)
	t.Run("template", func(t *testing.T) { testDevcontainerTemplate(t, d) })
	t.Run("owner", func(t *testing.T) { testDevcontainerOwner(t, d) })
	t.Run("image-alone", func(t *testing.T) { testDevcontainerImageAlone(t, d) })
	t.Run("from-inside", func(t *testing.T) { testDevcontainerFromInside(t, d) })
	t.Run("fails-closed", func(t *testing.T) { testDevcontainerFailsClosed(t, d) })
	t.Run("up", func(t *testing.T) { testDevcontainerUp(t, d) })
	t.Run("feature", func(t *testing.T) { testDevcontainerFeature(t, d) })
}

// applied is a workspace with the template, and with what the tests probe.
func (d *devcontainers) applied(t *testing.T, owner, uid int) *workspace {
	t.Helper()
	w := d.newWorkspace(t, owner, uid)
	w.apply(t, "agent-init", map[string]string{"image": d.e.claude, "state": ".claude"})
	w.allow(t, "example.com\n")
	// As with a company's own authority.
	w.edit(t, ".devcontainer/Dockerfile", "\nCMD", "\nCOPY ca.pem /usr/local/share/ca-certificates/own.crt\nRUN update-ca-certificates >/dev/null\nCMD")
	return w
}

// allow sets the project's allowlist, and brings what probes it.
func (w *workspace) allow(t *testing.T, lines string) {
	t.Helper()
	probes, err := os.ReadFile("testdata/agent.sh")
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(w.d.n.authority)
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, "agent.sh", string(probes))
	w.write(t, ".devcontainer/ca.pem", string(ca))
	w.write(t, ".devcontainer/allowlist.txt", lines)
}

// mustComeUp is "devcontainer up", as user.
func (w *workspace) mustComeUp(t *testing.T, user string) {
	t.Helper()
	r := w.up()
	var out struct{ Outcome, RemoteUser, RemoteWorkspaceFolder string }
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil || r.code != 0 || out.Outcome != "success" {
		t.Fatalf("devcontainer up: exit %d (%v)\n%s%s", r.code, err, r.stdout, r.stderr)
	}
	if out.RemoteUser != user || out.RemoteWorkspaceFolder != "/workspace" {
		t.Errorf("up as %s in %s, want %s in /workspace", out.RemoteUser, out.RemoteWorkspaceFolder, user)
	}
	t.Logf("devcontainer up took %v", r.took)
}

// outside is what a devcontainer that may reach example.com must not.
func outside() []string {
	return []string{
		target("tcp", "evil.example.net", 443), target("tcp", "evil.example.net", 80), target("tcp", "1.1.1.1", 443),
		target("udp", "1.1.1.1", 443), target("tcp", "169.254.169.254", 80), target("tcp", bridgeGateway, 8080),
		target("tcp", "2606:4700:4700::1111", 443), target("udp", "2606:4700:4700::1111", 443), target("tcp", "2606:50c0:8000::153", 80),
	}
}

const fetchExample = `exec 3<>/dev/tcp/example.com/80 && printf 'GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n' >&3 && cat <&3`

// mustBeConfined checks that an allowed name works in the devcontainer, and that all else is refused and noted.
// It returns what /proc says of a process of "devcontainer exec".
func (w *workspace) mustBeConfined(t *testing.T) report {
	t.Helper()
	w.d.n.forget()
	said := w.each(t, fetchExample, "bash /workspace/agent.sh -- '"+strings.Join(outside(), "' '")+"'", "agent-init log --denied", "agent-init status")
	fetched, probed, log, status := said[0], said[1], said[2], said[3]
	if fetched.code != 0 || !strings.Contains(fetched.stdout, "this is example.com") {
		t.Errorf("an allowed name: exit %d\n%s", fetched.code, fetched.stdout)
	}
	r := parseReport(t, probed.stdout)
	if !r.started {
		t.Fatalf("agent.sh: exit %d\n%s", probed.code, probed.stdout)
	}
	r.mustRefuse(t, outside())
	arrivals, queries := w.d.n.seen()
	arrived := false
	for _, a := range arrivals {
		switch s := a.String(); s {
		case "93.184.216.34:80", "[2606:2800:21f::34]:80":
			arrived = true
		case "160.79.104.10:443", "[2607:6bc0::10]:443": // the self-test, and the agent
		default:
			t.Errorf("something arrived at %s", s)
		}
	}
	if !arrived {
		t.Error("nothing arrived at example.com")
	}
	if slices.Contains(queries, "evil.example.net.") {
		t.Error("a query for the denied name evil.example.net arrived")
	}
	if log.code != 0 || !strings.Contains(log.stdout, "evil.example.net") || !strings.Contains(log.stdout, "1.1.1.1") {
		t.Errorf("the audit log does not have what was denied: exit %d\n%s", log.code, log.stdout)
	}
	if status.code != 0 {
		t.Errorf("status: exit %d\n%s", status.code, status.stdout)
	}
	return r
}

// mustHold checks the privileges of what "devcontainer exec" starts: none, and none to be had.
func (r report) mustHold(t *testing.T, uid string, noNewPrivileges bool) {
	t.Helper()
	const none = "0000000000000000"
	want := map[string]string{
		"Uid:": strings.Repeat(uid+" ", 3) + uid, "CapInh:": none, "CapPrm:": none, "CapEff:": none, "CapAmb:": none, "NoNewPrivs:": "0",
	}
	if noNewPrivileges {
		want["NoNewPrivs:"] = "1"
	}
	for field, want := range want {
		if got := r.status[field]; got != want {
			t.Errorf("of devcontainer exec: %s %q, want %q", field, got, want)
		}
	}
}

// mustCommit commits in the workspace from inside, and checks whose the objects are.
func (w *workspace) mustCommit(t *testing.T) {
	t.Helper()
	r := w.exec("git", "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "From inside")
	if r.code != 0 {
		t.Errorf("git commit: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	head := filepath.Join(w.path, ".git/refs/heads/main")
	if owner := ownerOf(t, head); owner != w.owner {
		t.Errorf("%s belongs to uid %d, want %d", head, owner, w.owner)
	}
}

// testDevcontainerTemplate is what most people do: their own uid, not that of the image; the template, as it
// was published; up, a day of work, a restart, another up.
func testDevcontainerTemplate(t *testing.T, d *devcontainers) {
	w := d.applied(t, someone, someone)
	read := d.must(t, someone, "read-configuration", "--workspace-folder", w.path)
	if !strings.Contains(read.stdout, `"overrideCommand":false`) || strings.Contains(read.stdout, "templateOption") {
		t.Errorf("the configuration is\n%s", read.stdout)
	}
	w.mustComeUp(t, "agent")
	container := w.container(t)
	t.Run("confined", func(t *testing.T) { w.mustBeConfined(t).mustHold(t, "4321", true) })
	t.Run("commit", func(t *testing.T) { w.mustCommit(t) })
	t.Run("first-process", func(t *testing.T) {
		if r := d.e.docker("exec", container, "cat", "/proc/1/comm"); r.stdout != "agent-init\n" {
			t.Errorf("the first process is %q", r.stdout)
		}
	})
	t.Run("no-way-to-privileges", func(t *testing.T) {
		if r := w.exec("sh", "-c", `! command -v sudo && test -z "$(find / -xdev -perm /6000 2>/dev/null)"`); r.code != 0 {
			t.Errorf("there is a program that gives privileges: %s", r.stdout)
		}
	})
	t.Run("claude", func(t *testing.T) {
		r := d.client(someone, "exec", "--workspace-folder", w.path, "--remote-env", "ANTHROPIC_API_KEY=sk-ant-test",
			"bash", "-c", `claude -p "say hello" && touch ~/.claude/x`)
		if r.code != 0 || !strings.Contains(r.stdout, saying) {
			t.Errorf("claude: exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
	})
	// What the session starts is confined as the agent is, in everything.
	t.Run("window", func(t *testing.T) {
		if r := w.exec("agent-init", "new", "probes", "--", "bash", "-c", "bash /workspace/agent.sh >/workspace/report; echo >>/workspace/report the end"); r.code != 0 {
			t.Fatalf("agent-init new: exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		var said []byte
		eventually(t, "the window's command has ended", waitLimit, func() bool {
			said, _ = os.ReadFile(filepath.Join(w.path, "report"))
			return strings.Contains(string(said), "the end")
		})
		r := parseReport(t, string(said))
		r.mustHold(t, "4321", true)
		if r.status["CapBnd:"] != "0000000000000000" || r.status["Seccomp:"] != "2" {
			t.Errorf("in a window: CapBnd %q, Seccomp %q", r.status["CapBnd:"], r.status["Seccomp:"])
		}
	})
	t.Run("restart", func(t *testing.T) {
		d.e.must(t, "restart", container)
		w.mustComeUp(t, "agent")
		if again := w.container(t); again != container {
			t.Errorf("the container was %s, now %s", container, again)
		}
		w.mustBeConfined(t).mustHold(t, "4321", true)
		w.mustCommit(t)
	})
	t.Run("stop-and-start", func(t *testing.T) {
		d.e.must(t, "stop", container)
		w.mustComeUp(t, "agent")
		w.mustBeConfined(t)
	})
}

// testDevcontainerOwner has a client that is root, and so leaves the image's uid as it is: the workspace is
// somebody else's all the same, and agent-init takes over that uid.
func testDevcontainerOwner(t *testing.T, d *devcontainers) {
	w := d.applied(t, someone, 0)
	w.mustComeUp(t, "agent")
	w.mustBeConfined(t).mustHold(t, "4321", true)
	w.mustCommit(t)
	// The client's marks are not looked for: its shell may be older than the agent's uid, and then can't make them.
	if r := w.exec("sh", "-c", "touch ~/x ~/.claude/x"); r.code != 0 {
		t.Errorf("the agent's home: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// testDevcontainerImageAlone has a configuration that names one of our images, and says nothing else: the image
// brings with it what it needs. Without an allowlist nothing can be reached.
func testDevcontainerImageAlone(t *testing.T, d *devcontainers) {
	w := d.newWorkspace(t, someone, someone)
	w.write(t, ".devcontainer/devcontainer.json", `{"image": "`+d.e.base+`", "runArgs": ["--cap-drop=ALL"]}`)
	probes, err := os.ReadFile("testdata/agent.sh")
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, "agent.sh", string(probes))
	d.n.forget()
	if r := w.up(); r.code != 0 {
		t.Fatalf("devcontainer up: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	denied := args(outside(), []string{target("tcp", "example.com", 443)})
	r := parseReport(t, w.exec(args([]string{"bash", "agent.sh", "--"}, denied)...).stdout)
	r.mustRefuse(t, denied)
	r.mustHold(t, "4321", true)
	arrivals, queries := d.n.seen()
	queries = slices.DeleteFunc(queries, func(name string) bool { return name == "containers.dev." }) // the client's
	if len(arrivals) > 0 || len(queries) > 0 {
		t.Errorf("arrived: %v; asked for: %q", arrivals, queries)
	}
	if r := w.exec("agent-init", "sessions"); r.code != 0 {
		t.Errorf("sessions: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}
