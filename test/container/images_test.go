package container

import (
	"debug/elf"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab/fakellm"
)

// TestContainerImages tests the base images of test/images.sh: another C library, other architectures, and languages.
func TestContainerImages(t *testing.T) {
	e := needEngine(t)
	if os.Getenv("AGENT_INIT_BINARIES") == "" {
		lacking(t, "the tests of the base images need test/images.sh")
	}
	model, mirror := fakellm.New(), newMirrors(t)
	n := &internet{everyName: true, web: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Host, ".example") {
			mirror.ServeHTTP(w, r)
		} else {
			model.ServeHTTP(w, r)
		}
	})}
	n.start(t, e)
	t.Run("alpine", func(t *testing.T) { testAlpine(t, e, n) })
	t.Run("busybox", func(t *testing.T) { testBusyBox(t, e, n) })
	t.Run("architecture", func(t *testing.T) { testArchitecture(t) })
	t.Run("per-architecture", func(t *testing.T) { testPerArch(t, e) })
	t.Run("slim", func(t *testing.T) { testSlim(t, e) })
	t.Run("sizes", func(t *testing.T) { writeSizes(t, e) })
	t.Run("authority", func(t *testing.T) { testAuthority(t, e, n) })
	for _, l := range languages() {
		t.Run(l.name, func(t *testing.T) { testLanguage(t, e, n, l) })
	}
}

// writeSizes writes the table of sizes in the documentation anew, where AGENT_INIT_UPDATE=1 is set, and otherwise sees that it has a line
// for each image: sizes differ between machines.
func writeSizes(t *testing.T, e *engine) {
	const file, prefix = "../../docs/images.md", "agent-init-test/"
	tags := e.must(t, "images", "--format", "debian:{{.Tag}}", prefix+"debian") // each says what is in it; the newest is the first
	debian, _, _ := strings.Cut(tags, "\n")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	for _, row := range []struct {
		name, image, base string
		compress          bool
	}{
		{"agent-base", "agent-base", debian, true},
		{"agent-base:alpine", "agent-alpine", "alpine:stand-in", true},
		{"agent-node", "variant-node", "base-node", false},
		{"agent-python", "variant-python", "base-python", false},
		{"agent-go", "variant-go", "base-go", false},
		{"agent-rust", "variant-rust", "base-rust", false},
	} {
		at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "| "+row.name+" |") })
		if at < 0 {
			t.Errorf("%s has no line for %s", file, row.name)
		} else if os.Getenv("AGENT_INIT_UPDATE") == "1" {
			compressed := "–"
			if row.compress {
				compressed = fmt.Sprint(e.compressed(t, prefix+row.image) / 1e6)
			}
			lines[at] = fmt.Sprintf("| %s | %d | %d | %s |", row.name, e.size(t, prefix+row.image)/1e6, e.size(t, prefix+row.base)/1e6, compressed)
		}
	}
	if os.Getenv("AGENT_INIT_UPDATE") == "1" {
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// noGlibc is true on a root that has nothing of glibc.
const noGlibc = `test -z "$(find / -xdev '(' -name 'libc.so.6' -o -name 'ld-linux*' -o -name 'libnss_*' ')')"`

// testAlpine runs Codex, which is static, on the Alpine target of Dockerfile.base.
func testAlpine(t *testing.T, e *engine, n *internet) {
	const base, codex = "agent-init-test/agent-alpine", "agent-init-test/agent-codex-alpine"
	e.mustHave(t, base)
	for _, check := range []struct{ name, user, script string }{
		{"musl", "0", noGlibc + " && test -e /etc/alpine-release"},
		{"no-setuid-no-setgid", "0", `test -z "$(find / -xdev -perm /6000)"`},
		{"no-file-capability", "0", `test -z "$(find / -xdev -type f -exec getcap {} +)"`},
		{"no-sudo-and-no-other-init", "0", noHelpers},
		{"agent-is-1000", "agent", `test "$(id -u):$(id -g):$(id -G)" = 1000:1000:1000 && test "$PWD" = /workspace && touch /workspace/x ~/x`},
		{"agent-can-change-nothing-of-ours", "agent", `for f in /usr/local/bin/agent-init /usr/local/bin /etc/agent-init /etc/agent-init/allowlist.d /var/lib/agent-init ` +
			`/run/agent-init /var/log/agent-init /etc/passwd; do test -e $f && test ! -w $f || exit 1; done`},
	} {
		t.Run(check.name, func(t *testing.T) {
			r := e.docker("run", "--name", e.name(t), "--cap-drop=ALL", "--cap-add=DAC_READ_SEARCH", "--network=none",
				"--user", check.user, "--entrypoint=sh", base, "-c", check.script)
			if r.code != 0 {
				t.Errorf("%s\nexit %d\n%s%s", check.script, r.code, r.stdout, r.stderr)
			}
		})
	}
	t.Run("label", func(t *testing.T) {
		if got := e.must(t, "inspect", "--format", `{{index .Config.Labels "org.agent-init.base"}}`, base); got != "alpine" {
			t.Errorf("the base is %q, want alpine", got)
		}
	})
	t.Run("agent", func(t *testing.T) {
		out := onBusyBox(t, e, n, []string{"-e", "CODEX_API_KEY=sk-test", codex},
			"codex exec --skip-git-repo-check 'say hello'; echo", "auth.openai.com", policyOf(t, agentSpec{name: "codex"}))
		if !strings.Contains(out, fakellm.Text) {
			t.Errorf("codex did not say %q:\n%s", fakellm.Text, out)
		}
	})
}

// testBusyBox runs agent-init on a root that has BusyBox and nothing else: no bash, no user for the agent, no directory of agent-init's.
func testBusyBox(t *testing.T, e *engine, n *internet) {
	const image = "agent-init-test/alpine:stand-in"
	binary := filepath.Join(os.Getenv("AGENT_INIT_BINARIES"), "agent-init")
	out := onBusyBox(t, e, n, args(allow(t, "plain.example\n"), []string{"-v", binary + ":/usr/local/bin/agent-init:ro", "--entrypoint=/usr/local/bin/agent-init",
		image, "run", "--user=1000:1000", "--"}),
		noGlibc+" && ! command -v bash && wget -q -O - http://plain.example/simple/thing/ && ! wget -q -O - http://other.example/simple/thing/ && echo", "plain.example",
		func(name string) bool { return name == "plain.example" })
	if !strings.Contains(out, "thing-1.0.0-py3-none-any.whl") {
		t.Errorf("the allowed server was not reached:\n%s", out)
	}
}

// onBusyBox runs a script confined, where the shell is BusyBox's, and then the probes that must be refused; the one of the open
// name must not. options end with the image, and allowed says for which names a question may arrive.
func onBusyBox(t *testing.T, e *engine, n *internet, options []string, script, open string, allowed func(string) bool) string {
	t.Helper()
	probes, err := filepath.Abs("testdata/busybox.sh")
	if err != nil {
		t.Fatal(err)
	}
	n.forget()
	var denied, sent []string
	for _, d := range args(denied4(bridgeGateway), denied6()) {
		if strings.HasPrefix(d, "udp/") {
			sent = append(sent, d)
		} else {
			denied = append(denied, d)
		}
	}
	out := e.docker(args([]string{"run", "--name", e.name(t), "-v", probes + ":/test/busybox.sh:ro"}, privileges(), agent(t, n), options,
		[]string{"sh", "/test/busybox.sh", script}, denied, sent, []string{target("tcp", open, 443)})...)
	r := parseReport(t, out.stdout)
	if !r.started || r.command != "0" {
		t.Fatalf("exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	r.mustRefuse(t, denied)
	r.mustBePowerless(t)
	if p := r.probes[target("tcp", open, 443)]; p.verdict != "open" {
		t.Errorf("%s: %s, want open", open, p.verdict)
	}
	arrivals, queries := n.seen()
	for _, q := range queries {
		if !allowed(strings.TrimSuffix(q, ".")) {
			t.Errorf("a question for %s arrived", q)
		}
	}
	for _, a := range arrivals {
		// A datagram is noted without its address.
		if a.Addr().IsUnspecified() || slices.Contains(denied, target("tcp", a.Addr().String(), int(a.Port()))) {
			t.Errorf("something arrived at %s", a)
		}
	}
	return out.stdout
}

// testArchitecture runs the binary of the other architecture under qemu: what it says of the same files is what ours says. Netlink
// is not among what qemu passes on whole, so nothing is confined there.
func testArchitecture(t *testing.T) {
	qemu, binaries := os.Getenv("AGENT_INIT_QEMU"), os.Getenv("AGENT_INIT_BINARIES")
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	config := t.TempDir()
	for name, text := range map[string]string{
		"allowlist.txt": "api.anthropic.com required\n*.githubusercontent.com\n@crates\n!gist.github.com\n10.0.0.0/8:5432\n",
		"bad.txt":       "*.com\nexample..com\n",
		".npmrc":        "registry=https://npm.corp.example:8443/\n",
	} {
		if err := os.WriteFile(filepath.Join(config, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	say := func(argv ...string) (string, int) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = config, []string{"HOME=" + config, "PATH=/usr/bin:/bin"}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatalf("%q: %v", argv, err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	for _, command := range [][]string{
		{"version"}, {"check", "--effective", "allowlist.txt"}, {"check", "bad.txt"}, {"detect", "npm", "pip", "cargo"},
		{"explain", "--config", config, "raw.githubusercontent.com"}, {"explain", "--config", config, "10.1.2.3:5432"},
		{"completion", "bash"}, {"run", "--help"}, {"nonsense"},
	} {
		t.Run(strings.Join(command[:1], " "), func(t *testing.T) {
			ours, code := say(args([]string{filepath.Join(binaries, "agent-init-"+runtime.GOARCH)}, command)...)
			theirs, otherCode := say(args([]string{qemu, filepath.Join(binaries, "agent-init-"+other)}, command)...)
			if ours != theirs || code != otherCode || ours == "" {
				t.Errorf("%q\n%s: exit %d\n%s\n%s: exit %d\n%s", command, runtime.GOARCH, code, ours, other, otherCode, theirs)
			}
		})
	}
}

// testPerArch builds what Dockerfile.base takes the binary from, for either architecture.
func testPerArch(t *testing.T, e *engine) {
	context := os.Getenv("AGENT_INIT_BINARIES")
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		t.Run(arch, func(t *testing.T) {
			image, holder := e.unique(t), e.name(t)
			e.must(t, "build", "-q", "--network=none", "-f", "../../Dockerfile.base", "--target=debian-binary", "--build-arg=DEBIAN="+e.base,
				"--build-arg=PER_ARCH=yes", "--build-arg=TARGETARCH="+arch, "-t", image, filepath.Dir(context))
			t.Cleanup(func() { e.docker("image", "rm", "-f", image) })
			e.must(t, "create", "--name", holder, image)
			file := filepath.Join(t.TempDir(), "agent-init")
			e.must(t, "cp", holder+":/agent-init", file)
			f, err := elf.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.Machine != machine {
				t.Errorf("the image for %s has a binary for %v", arch, f.Machine)
			}
			for _, p := range f.Progs {
				if p.Type == elf.PT_INTERP {
					t.Error("the binary is not static")
				}
			}
		})
	}
}
