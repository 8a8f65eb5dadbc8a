package container

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// testDevcontainerUp has an existing image, whose user may run agent-init up as root, and nothing else.
func testDevcontainerUp(t *testing.T, d *devcontainers) {
	existing := func(t *testing.T, lines string) *workspace {
		w := d.newWorkspace(t, someone, someone)
		w.apply(t, "agent-init-up", map[string]string{"image": d.existing, "user": "vscode", "agentInit": d.e.base})
		w.allow(t, lines)
		return w
	}
	w := existing(t, "example.com\n")
	// What the configuration and the caller put into the environment would weaken it, if it got there.
	w.edit(t, ".devcontainer/devcontainer.json", `"remoteUser"`, `"containerEnv": {"AGENT_INIT_MODE": "monitor", "AGENT_INIT_SELFTEST": "off", "HOST_UID": "77"}, "remoteUser"`)
	w.mustComeUp(t, "vscode")
	container := w.container(t)
	t.Run("confined", func(t *testing.T) { w.mustBeConfined(t).mustHold(t, "4321", false) })
	t.Run("commit", func(t *testing.T) { w.mustCommit(t) })
	t.Run("environment-is-not-passed", func(t *testing.T) {
		keeper := keeperPID(t, d.e, container)
		env, err := os.ReadFile("/proc/" + keeper + "/environ")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"AGENT_INIT_", "HOST_UID", "LD_", "HOME=/home/vscode"} {
			if strings.Contains(string(env), name) {
				t.Errorf("%s reached the keeper: %q", name, env)
			}
		}
		r := w.exec("sh", "-c", "LD_PRELOAD=/workspace/x.so AGENT_INIT_MODE=monitor /usr/bin/sudo -n /usr/local/bin/agent-init up && agent-init status --json")
		if r.code != 0 || !strings.Contains(r.stdout, `"healthy": true`) {
			t.Errorf("up once more: exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
	})
	t.Run("one-rule", func(t *testing.T) {
		const up = "/usr/local/bin/agent-init up"
		tries := []string{
			up + " --mode monitor", up + " --config /workspace", up + " --user root", up + " up", "/usr/local/bin/agent-init", "/usr/local/bin/agent-init run -- sh",
			"/usr/local/bin/agent-init allow evil.example.net", "agent-init up", "/workspace/../usr/local/bin/agent-init up --selftest off",
			"sh", "-u root sh", "-i", "-u nobody " + up, "-g root " + up, "-E " + up, "AGENT_INIT_MODE=monitor " + up, "--preserve-env=PATH " + up, "-e /etc/sudoers",
			"-C 64 " + up, "-R /workspace " + up, "-D /tmp " + up,
		}
		for i, try := range tries {
			tries[i] = "/usr/bin/sudo -n " + try
		}
		w.mustNotWork(t, tries...)
		r := w.exec("sh", "-c", `find / -xdev -perm /6000 -type f 2>/dev/null; ls -A /etc/sudoers.d 2>/dev/null`)
		if r.stdout != "/usr/bin/sudo\n" {
			t.Errorf("what gives privileges, and further rules: %q, want sudo alone", r.stdout)
		}
	})
	// The agent suppresses the hook that runs once for each start, and puts itself in the place of sudo.
	t.Run("restart", func(t *testing.T) {
		r := w.exec("sh", "-c", `rm -r ~/.devcontainer && echo >~/.devcontainer && mkdir -p ~/.local/bin ~/bin &&
			printf '#!/bin/sh\necho sudo >>/workspace/ran\n' >~/bin/sudo && chmod +x ~/bin/sudo && cp ~/bin/sudo ~/.local/bin &&
			echo 'sudo() { echo function >>/workspace/ran; }; export -f sudo; PATH=~/bin:$PATH LD_PRELOAD=/workspace/x.so; export PATH LD_PRELOAD; echo ran >>/workspace/ran' | tee ~/.profile ~/.bash_profile >~/.bashrc`)
		if r.code != 0 {
			t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		d.e.must(t, "restart", container)
		if r := w.exec("agent-init", "wait", "--timeout", "1ms"); r.code == 0 {
			t.Error("wait is content with what no keeper confines")
		}
		w.mustComeUp(t, "vscode")
		w.mustBeConfined(t)
		if ran, err := os.ReadFile(w.path + "/ran"); err == nil {
			t.Errorf("the agent's own ran: %s", ran)
		}
	})
	t.Run("fails-closed", func(t *testing.T) {
		w := existing(t, "example.com\nnowhere.example.org required\n")
		r := w.up()
		if r.code == 0 || !strings.Contains(r.stderr, "nowhere.example.org") || !strings.Contains(r.stderr, "remedy:") {
			t.Errorf("devcontainer up: exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		d.n.forget()
		if r := w.exec("bash", "-c", fetchExample); r.code == 0 {
			t.Error("a name is reached, although the start failed")
		}
		if arrivals, _ := d.n.seen(); len(arrivals) > 0 {
			t.Errorf("something arrived at %v", arrivals)
		}
	})
}

// keeperPID is the keeper of "agent-init up", as the machine numbers it.
func keeperPID(t *testing.T, e *engine, container string) string {
	t.Helper()
	for line := range strings.Lines(e.must(t, "top", container, "-eo", "pid,args")) {
		if f := strings.Fields(line); strings.Contains(line, "agent-init __keeper") {
			return f[0]
		}
	}
	t.Fatal("there is no keeper")
	return ""
}

// testDevcontainerFeature adds the published feature to the existing image as it is, whose user may do everything as root.
func testDevcontainerFeature(t *testing.T, d *devcontainers) {
	with := func(t *testing.T, options, more string) *workspace {
		w := d.newWorkspace(t, someone, someone)
		w.allow(t, "")
		w.write(t, ".devcontainer/devcontainer.json", fmt.Sprintf(`{
			"image": %q, "features": {"%sfeatures/agent-init:3": %s}, "userEnvProbe": "none",
			"workspaceFolder": "/workspace", "workspaceMount": "source=${localWorkspaceFolder},target=/workspace,type=bind"%s
		}`, d.existing, published, options, more))
		return w
	}
	const vscode = `, "remoteUser": "vscode"`

	t.Run("confined", func(t *testing.T) {
		w := with(t, `{"allow": "example.com, !gist.example.com"}`, vscode)
		w.mustComeUp(t, "vscode")
		w.mustBeConfined(t).mustHold(t, "4321", true)
		w.mustCommit(t)
		w.mustNotWork(t, "sudo -n true", "sudo -n agent-init up", "echo example.net >>/etc/agent-init/allowlist.txt")
		container := w.container(t)
		d.e.must(t, "restart", container)
		// Not the client but the container itself confines it again.
		eventually(t, "the container is confined after a restart", waitLimit, func() bool {
			return d.e.docker("exec", "-u", "vscode", container, "agent-init", "status", "--quiet").code == 0
		})
		w.mustComeUp(t, "vscode")
		w.mustBeConfined(t)
	})

	for _, test := range []struct {
		name, options, more string
		cause, remedy       string
	}{
		{"agent-is-root", `{}`, "", "an agent that is root", "remoteUser"},
		{"first-process-is-not-root", `{}`, vscode + `, "containerUser": "vscode"`, "only root can confine", "containerUser"},
		{"bad-entry", `{"allow": "*.com"}`, vscode, "feature.txt:1", "correct what is named"},
		{"required-is-not-there", `{"allow": "nowhere.example.org required"}`, vscode, "nowhere.example.org", "take the word required"},
		{"network-of-the-host", `{}`, vscode + `, "runArgs": ["--network=host"]`, "not the container's own network", "no --network host"},
		{"url-without-checksum", `{"url": "http://example.com/agent-init-ARCH"}`, vscode, "sha256 is not", "pin"},
		{"url-with-another-checksum", `{"url": "http://example.com/agent-init-ARCH", "sha256": "` + strings.Repeat("0", 64) + `"}`, vscode, "is not what sha256 says", "correct"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := with(t, test.options, test.more)
			r := w.up()
			if r.code == 0 || strings.Contains(r.stdout, `"outcome":"success"`) { // the client may not live to say "error"
				t.Errorf("devcontainer up: exit %d, want a failure", r.code)
			}
			if !strings.Contains(r.stderr+r.stdout, test.cause) || !strings.Contains(r.stderr+r.stdout, test.remedy) {
				t.Errorf("what devcontainer up says lacks %q or %q", test.cause, test.remedy)
			}
			w.mustNotRun(t)
			if t.Failed() {
				t.Logf("devcontainer up: exit %d\n%s%s", r.code, r.stdout, r.stderr)
			}
		})
	}

	t.Run("fetched", func(t *testing.T) {
		w := with(t, fmt.Sprintf(`{"allow": "example.com", "url": "http://example.com/agent-init-ARCH", "sha256": %q}`, d.checksum), vscode)
		w.mustComeUp(t, "vscode")
		w.mustBeConfined(t)
	})

	// The client's own way to test a feature.
	t.Run("features-test", func(t *testing.T) {
		t.Cleanup(func() {
			for _, id := range strings.Fields(d.e.docker("ps", "-aq", "--filter", "label=devcontainer.is_test_run=true").stdout) {
				d.e.docker("rm", "-f", "-v", id)
			}
		})
		r := d.client(0, "features", "test", "--project-folder", d.packed()+"/features", "--base-image", d.existing, "--remote-user", "vscode")
		if r.code != 0 || !strings.Contains(r.stdout+r.stderr, "nothing can be reached by default") {
			t.Errorf("devcontainer features test: exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
	})
}
