package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testDevcontainerFromInside is an agent that prepares the next start to its own liking.
func testDevcontainerFromInside(t *testing.T, d *devcontainers) {
	w := d.applied(t, someone, someone)
	w.mustComeUp(t, "agent")
	w.mustNotWork(t, "echo >>/workspace/.devcontainer/devcontainer.json", "echo >/workspace/.devcontainer/x", "rm -r /workspace/.devcontainer",
		"mv /workspace/.devcontainer /workspace/y", "echo example.net >>/etc/agent-init/allowlist.txt", "echo >>/etc/passwd")
	// What shells read at their start, and the marks by which the client knows that a hook has run.
	r := w.exec("sh", "-c", `for f in ~/.bashrc ~/.profile ~/.bash_profile; do echo 'echo ran >/workspace/ran' >$f; done; rm -r ~/.devcontainer; echo >~/.devcontainer`)
	if r.code != 0 {
		t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	d.e.must(t, "restart", w.container(t))
	up := w.up()
	if up.code != 0 || strings.Contains(up.stderr, "Running the postStartCommand") || !strings.Contains(up.stderr, "Running the postAttachCommand") {
		t.Errorf("devcontainer up: exit %d, want its hooks for each start suppressed, and the others not\n%s", up.code, up.stderr)
	}
	if _, err := os.Lstat(filepath.Join(w.path, "ran")); err == nil {
		t.Error("the agent's startup files ran before the container was confined")
	}
	w.mustBeConfined(t)
}

// testDevcontainerFailsClosed has configurations that weaken, or a policy that can't be held: "devcontainer up"
// fails with the cause and the remedy, and nothing can be run in the container.
func testDevcontainerFailsClosed(t *testing.T, d *devcontainers) {
	const config = ".devcontainer/devcontainer.json"
	for _, test := range []struct {
		name          string
		change        func(t *testing.T, w *workspace)
		cause, remedy string
	}{
		{"policy-with-an-error", func(t *testing.T, w *workspace) { w.allow(t, "example.com\n*.com\n") },
			"project.txt:2", ""}, // the image is not built
		{"required-is-not-there", func(t *testing.T, w *workspace) { w.allow(t, "nowhere.example.org required\n") },
			"nowhere.example.org", "take the word required"},
		{"first-process-is-not-root", func(t *testing.T, w *workspace) {
			w.edit(t, config, `"remoteUser"`, `"containerUser": "agent", "remoteUser"`)
		},
			"needs root", "docker run --user=0"},
		{"network-of-the-host", func(t *testing.T, w *workspace) {
			w.edit(t, config, `"--cap-drop=ALL"`, `"--network=host", "--cap-drop=ALL"`)
		}, "not the container's own network", "no --network host"},
		{"command-overridden", func(t *testing.T, w *workspace) {
			w.edit(t, config, `"overrideCommand": false`, `"overrideCommand": true`)
		},
			"without its entrypoint", "overrideCommand"},
		{"command-overridden-and-hook-left-out", func(t *testing.T, w *workspace) {
			w.edit(t, config, `"overrideCommand": false`, `"overrideCommand": true`)
			w.edit(t, config, `"postStartCommand"`, `"//"`)
		}, "without its entrypoint", "overrideCommand"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := d.applied(t, someone, someone)
			test.change(t, w)
			d.n.forget()
			r := w.up()
			if r.code == 0 || strings.Contains(r.stdout, `"outcome":"success"`) { // the client may not live to say "error"
				t.Errorf("devcontainer up: exit %d, want a failure", r.code)
			}
			if !strings.Contains(r.stderr, test.cause) || !strings.Contains(r.stderr, test.remedy) {
				t.Errorf("what devcontainer up says lacks %q or %q", test.cause, test.remedy)
			}
			w.mustNotRun(t)
			if t.Failed() {
				t.Logf("devcontainer up: exit %d\n%s%s", r.code, r.stdout, r.stderr)
			}
		})
	}

	// An image that says nothing of itself: then the hook is what notices.
	t.Run("image-without-entrypoint", func(t *testing.T) {
		w := d.applied(t, someone, someone)
		w.write(t, ".devcontainer/Dockerfile", "FROM "+d.e.base+" AS agent-init\nFROM "+d.existing+
			"\nCOPY --from=agent-init /usr/local/bin/agent-init /usr/local/bin/\nRUN useradd --uid 2000 --create-home agent\n")
		w.edit(t, config, `"overrideCommand": false`, `"overrideCommand": true`)
		r := w.up()
		if r.code == 0 || !strings.Contains(r.stderr, "agent-init has not confined this container") || !strings.Contains(r.stderr, `"overrideCommand": false`) {
			t.Errorf("devcontainer up: exit %d, want wait to notice it\n%s%s", r.code, r.stdout, r.stderr)
		}
	})
}
