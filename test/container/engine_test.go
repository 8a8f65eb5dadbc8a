package container

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/internal/netns"
)

// engine is the private container engine, and the images under test.
type engine struct {
	base, claude string // images
	xtables      string // claude, with iptables
	codex, npm   string // of the tests of places
	netns        string // path of the engine's network namespace
	serial       atomic.Int64
}

// need returns the engine, or skips the test; where AGENT_INIT_MUST_RUN=1 is set it fails instead.
func need(t *testing.T) *engine {
	t.Helper()
	e := needEngine(t)
	e.claude, e.xtables = os.Getenv("AGENT_INIT_CLAUDE_IMAGE"), os.Getenv("AGENT_INIT_XTABLES_IMAGE")
	if e.claude == "" || e.xtables == "" {
		lacking(t, "the container tests need AGENT_INIT_IMAGE, AGENT_INIT_CLAUDE_IMAGE and AGENT_INIT_XTABLES_IMAGE")
	}
	e.mustHave(t, e.claude)
	e.mustHave(t, e.xtables)
	return e
}

// lacking skips the test, or fails it where AGENT_INIT_MUST_RUN=1 is set.
func lacking(t *testing.T, what string) {
	t.Helper()
	mustrun.Lacks(t, "%s", what)
}

// needEngine is need for a test that wants no other image than the base.
func needEngine(t *testing.T) *engine {
	t.Helper()
	lacking := func(what string) {
		t.Helper()
		lacking(t, what)
	}
	e := &engine{base: os.Getenv("AGENT_INIT_IMAGE")}
	socket, ok := strings.CutPrefix(os.Getenv("DOCKER_HOST"), "unix://")
	switch {
	case os.Geteuid() != 0:
		lacking("the container tests need root")
	case !ok:
		lacking("the container tests need the engine of test/engine.sh: DOCKER_HOST is not set to its socket")
	case e.base == "":
		lacking("the container tests need AGENT_INIT_IMAGE")
	}
	pid, err := os.ReadFile(filepath.Join(filepath.Dir(socket), "docker.pid"))
	if err != nil {
		lacking("DOCKER_HOST is not the engine of test/engine.sh: " + err.Error())
	}
	e.netns = filepath.Join("/proc", strings.TrimSpace(string(pid)), "ns/net")
	e.mustBeSealedOff(t)
	e.mustHave(t, e.base)
	return e
}

func (e *engine) mustHave(t *testing.T, image string) {
	t.Helper()
	if r := e.docker("image", "inspect", image); r.code != 0 {
		t.Fatalf("image %s is not there: %s", image, r.stderr)
	}
}

// mustBeSealedOff stops the test if the engine shares our network namespace, or has an interface that
// it did not make itself: then packets of the containers could leave the machine, and rules could
// reach the machine's own.
func (e *engine) mustBeSealedOff(t *testing.T) {
	t.Helper()
	theirs, err := os.Readlink(e.netns)
	if err != nil {
		t.Fatalf("read the engine's network namespace: %v", err)
	}
	// Not /proc/self: that is the first thread, which may have been taken by inside.
	if ours, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || ours == theirs {
		t.Fatalf("the engine is in this network namespace, %s (%v): start it with test/engine.sh", ours, err)
	}
	err = inside(e.netns, func() error {
		links, err := net.Interfaces()
		for _, l := range links {
			if !regexp.MustCompile(`^(lo|docker0|br-[0-9a-f]{12}|veth[0-9a-f]+)$`).MatchString(l.Name) {
				return fmt.Errorf("interface %s is none of the engine's", l.Name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatalf("the engine is not sealed off: %v: start it with test/engine.sh", err)
	}
}

// inside runs fn on a thread in the network namespace of that path.
func inside(path string, fn func() error) error {
	ns, err := netns.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(fn)
}

// result is how a command ended.
type result struct {
	stdout, stderr string
	code           int
	took           time.Duration
}

// docker runs one engine command. It never waits longer than ten minutes: code is -1 then.
func (e *engine) docker(args ...string) result {
	return run("docker", args...)
}

func run(name string, args ...string) result {
	return runFor(10*time.Minute, name, args...)
}

// runFor is run with another time to wait.
func runFor(limit time.Duration, name string, args ...string) result {
	return finish(exec.Command(name, args...), limit)
}

// finish runs a command to its end, or for as long as it may take.
func finish(cmd *exec.Cmd, limit time.Duration) result {
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begin := time.Now()
	err := cmd.Start()
	if err == nil {
		late := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait()
		late.Stop()
	}
	r := result{stdout: stdout.String(), stderr: stderr.String(), took: time.Since(begin)}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		r.code = exit.ExitCode()
	case err != nil:
		r.code, r.stderr = -1, r.stderr+err.Error()
	}
	return r
}

// must is docker for a command that is part of the set-up.
func (e *engine) must(t *testing.T, args ...string) string {
	t.Helper()
	r := e.docker(args...)
	if r.code != 0 {
		t.Fatalf("docker %s: exit %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return strings.TrimSpace(r.stdout)
}

// unique returns a name for an object of the engine that no other has.
func (e *engine) unique(t *testing.T) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(t.Name()))
	return fmt.Sprintf("%s-%d-%d", clean, os.Getpid(), e.serial.Add(1))
}

// name returns a name for a container, and removes the container at the end.
func (e *engine) name(t *testing.T) string {
	t.Helper()
	name := e.unique(t)
	t.Cleanup(func() {
		if t.Failed() {
			logs := e.docker("logs", "--tail", "60", name)
			t.Logf("%s said:\n%s%s", name, logs.stdout, logs.stderr)
		}
		e.docker("rm", "-f", "-v", name)
	})
	return name
}

// privileges are the capabilities that the run line of the documentation gives, and no others.
func privileges() []string {
	return []string{"--cap-drop=ALL", "--cap-add=NET_ADMIN", "--cap-add=SETUID", "--cap-add=SETGID", "--cap-add=SETPCAP"}
}

// args joins lists of arguments.
func args(lists ...[]string) []string {
	var all []string
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// eventually waits until ok says yes, looking ten times a second, for as long as is said or for five minutes. It measures
// nothing: on a slow machine a test takes longer, and does not fail.
func eventually(t *testing.T, what string, within time.Duration, ok func() bool) {
	t.Helper()
	within = max(within, 5*time.Minute)
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
