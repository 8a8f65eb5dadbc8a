package container

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// someone is the uid of the person at the devcontainer client: none that an image has.
const someone = 4321

// published is where the features and the templates are: the real name, of a registry that is the test's own.
const published = "ghcr.io/agent-init/"

// devcontainers is the real client, in the engine's namespace: it reaches the engine, the internet of
// the tests, and nothing else.
type devcontainers struct {
	e        *engine
	n        *internet
	home     string // the client's
	dir      string // of the workspaces, which anybody may enter
	socket   string // of the engine, for anybody
	existing string // an image that has nothing of ours
	checksum string // of the program, which http://example.com/agent-init-ARCH has
}

func needDevcontainers(t *testing.T) *devcontainers {
	t.Helper()
	e := needEngine(t)
	d := &devcontainers{e: e, home: os.Getenv("AGENT_INIT_DEVCONTAINER"), existing: os.Getenv("AGENT_INIT_EXISTING_IMAGE")}
	e.claude = os.Getenv("AGENT_INIT_CLAUDE_IMAGE")
	if d.home == "" || d.existing == "" || e.claude == "" || os.Getenv("AGENT_INIT_BIN") == "" {
		lacking(t, "these tests are started by test/places.sh devcontainer")
	}
	dir, err := os.MkdirTemp("", "devcontainer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		os.RemoveAll(dir)
		// What the client has built: in an engine that is the tests' own, its names are nobody else's.
		for _, pattern := range []string{"vsc-*", "dev_container_feature_content_temp"} {
			for _, id := range strings.Fields(e.docker("images", "-q", "--filter", "reference="+pattern).stdout) {
				e.docker("image", "rm", "-f", id)
			}
		}
		e.docker("image", "prune", "-f")
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d.dir = dir
	d.n = newInternet(t, e)
	authority, err := os.ReadFile(d.n.authority)
	if err != nil {
		t.Fatal(err)
	}
	accounts := fmt.Sprintf("root:x:0:0::/:/bin/sh\nsomeone:x:%d:%[1]d::/:/bin/sh\n", someone)
	for name, content := range map[string]string{"ca.pem": string(authority), "passwd": accounts, "hosts": "127.0.0.1 localhost\n140.82.112.33 ghcr.io\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d.forwardEngine(t)
	d.publish(t)
	return d
}

// forwardEngine lets anybody use the engine, whose own socket is root's.
func (d *devcontainers) forwardEngine(t *testing.T) {
	t.Helper()
	d.socket = filepath.Join(d.dir, "docker.sock")
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.Chmod(d.socket, 0o666); err != nil {
		t.Fatal(err)
	}
	to := strings.TrimPrefix(os.Getenv("DOCKER_HOST"), "unix://")
	copyAll := func(dst, src *net.UnixConn) {
		io.Copy(dst, src)
		dst.CloseWrite()
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("unix", to)
			if err != nil {
				c.Close()
				continue
			}
			go copyAll(up.(*net.UnixConn), c.(*net.UnixConn))
			go copyAll(c.(*net.UnixConn), up.(*net.UnixConn))
		}
	}()
}

// publish packs the repository's own feature and templates with the program under test, and publishes them.
func (d *devcontainers) publish(t *testing.T) {
	t.Helper()
	tree := filepath.Join(d.dir, "tree")
	for _, part := range []string{"images/devcontainer", "bin"} {
		if err := os.MkdirAll(filepath.Join(tree, part), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(tree, "images/devcontainer"), os.DirFS("../../images/devcontainer")); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(os.Getenv("AGENT_INIT_BIN"))
	if err == nil {
		err = os.WriteFile(filepath.Join(tree, "bin/agent-init-"+runtime.GOARCH), program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.checksum = fmt.Sprintf("%x", sha256.Sum256(program))
	web := d.n.web.(*http.ServeMux)
	web.HandleFunc("example.com/agent-init-"+runtime.GOARCH, func(w http.ResponseWriter, _ *http.Request) { w.Write(program) })
	if r := run(filepath.Join(tree, "images/devcontainer/pack.sh"), d.packed(), "3.2.1"); r.code != 0 {
		t.Fatalf("pack.sh: exit %d\n%s", r.code, r.stderr)
	}
	web.Handle("ghcr.io/", newRegistry())
	for _, kind := range []string{"features", "templates"} {
		d.must(t, 0, kind, "publish", "-r", "ghcr.io", "-n", "agent-init/"+kind, filepath.Join(d.packed(), kind, "src"))
	}
}

// packed is what is published.
func (d *devcontainers) packed() string { return filepath.Join(d.dir, "packed") }

// client runs the devcontainer client as uid. It can take long: it builds images.
func (d *devcontainers) client(uid int, args ...string) result {
	id := strconv.Itoa(uid)
	home := filepath.Join(d.dir, "home-"+id)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return result{code: -1, stderr: err.Error()}
	}
	if err := os.Chown(home, uid, uid); err != nil {
		return result{code: -1, stderr: err.Error()}
	}
	// The client asks for the name of who runs it, which the machine need not know, and for ghcr.io, which it must not ask.
	const known = `mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/hosts" /etc/hosts && shift && exec "$@"`
	return runFor(10*time.Minute, "nsenter", append([]string{"--net=" + d.e.netns, "unshare", "--mount", "sh", "-c", known, "sh", d.dir, "setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups",
		"env", "-C", home, "-i", "HOME=" + home, "USER=someone", "TMPDIR=" + home, "PATH=" + os.Getenv("PATH"), "DOCKER_BUILDKIT=0", "DOCKER_HOST=unix://" + d.socket, "NODE_EXTRA_CA_CERTS=" + filepath.Join(d.dir, "ca.pem"),
		filepath.Join(d.home, "node"), filepath.Join(d.home, "package/devcontainer.js")}, args...)...)
}

func (d *devcontainers) must(t *testing.T, uid int, args ...string) result {
	t.Helper()
	r := d.client(uid, args...)
	if r.code != 0 {
		t.Fatalf("devcontainer %s: exit %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r
}

// workspace is a person's checkout, with a devcontainer.
type workspace struct {
	d     *devcontainers
	owner int // of the files
	uid   int // of the client
	path  string
}

// newWorkspace makes a git repository that owner owns. What the client makes for it goes with it.
func (d *devcontainers) newWorkspace(t *testing.T, owner, uid int) *workspace {
	t.Helper()
	w := &workspace{d: d, owner: owner, uid: uid, path: filepath.Join(d.dir, d.e.unique(t))}
	if err := os.Mkdir(w.path, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("git", "-C", w.path, "init", "-q", "-b", "main").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	w.write(t, "project.txt", "a project\n")
	t.Cleanup(func() { w.remove(t) })
	return w
}

// remove removes the containers and volumes of the workspace.
func (w *workspace) remove(t *testing.T) {
	e := w.d.e
	for _, id := range strings.Fields(e.docker("ps", "-aq", "--filter", "label=devcontainer.local_folder="+w.path).stdout) {
		volumes := strings.Fields(e.docker("inspect", "--format", `{{range .Mounts}}{{if eq .Type "volume"}}{{.Name}} {{end}}{{end}}`, id).stdout)
		if t.Failed() {
			logs := e.docker("logs", "--tail", "60", id)
			t.Logf("the container said:\n%s%s", logs.stdout, logs.stderr)
		}
		e.docker("rm", "-f", "-v", id)
		e.docker(append([]string{"volume", "rm", "-f"}, volumes...)...)
	}
}

// write puts a file into the workspace, and gives all of it to the owner.
func (w *workspace) write(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(w.path, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	w.give(t)
}

func (w *workspace) give(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(w.path, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, w.owner, w.owner)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// edit replaces text of a file in the workspace, which must have it.
func (w *workspace) edit(t *testing.T, name, from, to string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(w.path, name))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), from) {
		t.Fatalf("%s has no %q:\n%s", name, from, data)
	}
	w.write(t, name, strings.Replace(string(data), from, to, 1))
}

// apply applies a template of ours as it was published. The client does it once, and it is copied after that.
func (w *workspace) apply(t *testing.T, template string, options map[string]string) {
	t.Helper()
	given, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	once := filepath.Join(w.d.dir, fmt.Sprintf("applied-%x", sha256.Sum256([]byte(template+string(given)))))
	if _, err := os.Stat(once); err != nil {
		w.d.must(t, 0, "templates", "apply", "--workspace-folder", once, "--template-id", published+"templates/"+template+":latest", "--template-args", string(given))
	}
	if err := os.CopyFS(w.path, os.DirFS(once)); err != nil {
		t.Fatal(err)
	}
	w.give(t)
}

func (w *workspace) up(args ...string) result {
	return w.d.client(w.uid, append([]string{"up", "--workspace-folder", w.path, "--buildkit", "never"}, args...)...)
}

// exec runs a command in the devcontainer, as the client does.
func (w *workspace) exec(command ...string) result {
	return w.d.client(w.uid, append([]string{"exec", "--workspace-folder", w.path}, command...)...)
}

// each runs bash's lines one after another in one exec, as a start of the client takes longer than most of them. What a line
// prints is its stdout, on whichever of the two.
func (w *workspace) each(t *testing.T, lines ...string) []result {
	t.Helper()
	const ended = "\nthat line ended with "
	out := w.exec(args([]string{"bash", "-c", `for line; do bash -c "$line" </dev/null 2>&1; printf '\nthat line ended with %d\n' $?; done`, "bash"}, lines)...)
	said := strings.Split(out.stdout, ended)
	if len(said) != len(lines)+1 {
		t.Fatalf("devcontainer exec: exit %d, and %d of %d lines ended\n%s%s", out.code, len(said)-1, len(lines), out.stdout, out.stderr)
	}
	results := make([]result, len(lines))
	for i := range lines {
		code, after, _ := strings.Cut(said[i+1], "\n")
		results[i].stdout += said[i]
		said[i+1] = after
		if _, err := fmt.Sscan(code, &results[i].code); err != nil {
			t.Fatalf("%q ended with %q", lines[i], code)
		}
	}
	return results
}

// mustNotWork runs what the agent tries, of which nothing may succeed.
func (w *workspace) mustNotWork(t *testing.T, tries ...string) {
	t.Helper()
	for i, r := range w.each(t, tries...) {
		if r.code == 0 {
			t.Errorf("the agent can do %q\n%s", tries[i], r.stdout)
		}
	}
}

// mustNotRun checks that no command can be run in any container of the workspace.
func (w *workspace) mustNotRun(t *testing.T) {
	t.Helper()
	for _, id := range strings.Fields(w.d.e.must(t, "ps", "-aq", "--filter", "label=devcontainer.local_folder="+w.path)) {
		if r := w.d.e.docker("exec", id, "true"); r.code == 0 {
			t.Error("commands can be run in the container")
		}
	}
}

// container is the workspace's container, running or not.
func (w *workspace) container(t *testing.T) string {
	t.Helper()
	id := w.d.e.must(t, "ps", "-aq", "--filter", "label=devcontainer.local_folder="+w.path)
	if id == "" || strings.Contains(id, "\n") {
		t.Fatalf("the workspace has %q for a container", id)
	}
	return id
}

// waitLimit is for what takes no time, on a machine that may be busy.
const waitLimit = time.Minute

func ownerOf(t *testing.T, path string) int {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return int(st.Uid)
}
