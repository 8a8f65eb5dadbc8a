package container

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// testFaults breaks what is around a container: nothing leaves, and when it is
// whole again so is the container, without help. It ends with the engine itself.
func testFaults(t *testing.T, e *engine, n *internet) {
	name := e.name(t)
	e.must(t, args([]string{"run", "-d", "--restart=always", "--name", name}, privileges(), agent(t, n),
		allow(t, "api.anthropic.com required\n"), []string{e.base, "sleep", "infinity"})...)
	healthy := func(after string) {
		t.Helper()
		eventually(t, "healthy after "+after, time.Minute, func() bool {
			return e.docker("exec", name, "agent-init", "status", "--quiet").code == 0
		})
	}
	healthy("its start")

	restarts := 6
	if os.Getenv("AGENT_INIT_STRESS") == "1" {
		restarts = 50
	}
	for i := range restarts {
		how := []string{"restart", "kill"}[i%2]
		if how == "kill" { // the engine starts it again
			e.must(t, "kill", "--signal=KILL", name)
			e.must(t, "start", name)
		} else {
			e.must(t, "restart", "-t", "1", name)
		}
		healthy(how)
	}
	t.Logf("restarted %d times", restarts)
	mustBeConfined(t, e, n, name)

	restarted := func() string {
		return e.must(t, "exec", name, "sh", "-c", "agent-init status --json | grep restarts | head -1")
	}
	before := restarted()
	e.must(t, "pause", name)
	time.Sleep(8 * time.Second) // longer than a guard that hangs is given
	e.must(t, "unpause", name)
	healthy("a pause")
	if now := restarted(); now != before {
		t.Errorf("the guard was replaced after a pause: %s, was %s", now, before)
	}
	mustBeConfined(t, e, n, name)

	network := e.unique(t)
	e.must(t, "network", "create", network)
	t.Cleanup(func() { e.docker("network", "rm", network) })
	for range 3 {
		e.must(t, "network", "connect", network, name)
		healthy("a second network")
		mustBeConfined(t, e, n, name)
		e.must(t, "network", "disconnect", network, name)
		healthy("a network less")
	}
	mustBeConfined(t, e, n, name)

	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprintf("engine-restarted-live-%t", live), func(t *testing.T) {
			if live { // its containers live on only if it was started so
				e.restart(t, true, nil)
				healthy("the engine's restart")
			}
			pid := e.must(t, "inspect", "--format", "{{.State.Pid}}", name)
			e.restart(t, live, func() {
				if !live {
					return
				}
				out, err := exec.Command("nsenter", "--target", pid, "--all", "agent-init", "status", "--quiet").CombinedOutput()
				if err != nil {
					t.Errorf("not healthy without an engine: %v: %s", err, out)
				}
			})
			healthy("the engine's restart")
			if now := e.must(t, "inspect", "--format", "{{.State.Pid}}", name); (now == pid) != live {
				t.Errorf("PID 1 is %s, was %s", now, pid)
			}
			mustBeConfined(t, e, n, name)
		})
	}
	e.restart(t, false, nil)
}

// restart ends the engine and starts it as it was, with its containers living on or
// not; what has to be seen without it is done between.
func (e *engine) restart(t *testing.T, live bool, meanwhile func()) {
	t.Helper()
	e.restartBy(t, live, syscall.SIGTERM, meanwhile)
}

// restartBy is restart with the signal that ends the engine.
func (e *engine) restartBy(t *testing.T, live bool, end syscall.Signal, meanwhile func()) {
	t.Helper()
	pidfile := filepath.Join(filepath.Dir(strings.TrimPrefix(os.Getenv("DOCKER_HOST"), "unix://")), "docker.pid")
	text, err := os.ReadFile(pidfile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		t.Fatal(err)
	}
	command := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	if command[len(command)-1] == liveRestore {
		command = command[:len(command)-1]
	}
	if live {
		command = append(command, liveRestore)
	}
	log, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", pid), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	// The namespace has to outlive the process that it is known by.
	here, err := os.Open(e.netns)
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	if err := syscall.Kill(pid, end); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the engine ends", time.Minute, func() bool {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(state), ") Z ")
	})
	if meanwhile != nil {
		meanwhile()
	}
	engine := exec.Command(command[0], command[1:]...)
	engine.Stdout, engine.Stderr, engine.SysProcAttr = log, log, &syscall.SysProcAttr{Setsid: true}
	if err := inside(fmt.Sprintf("/proc/self/fd/%d", here.Fd()), engine.Start); err != nil {
		t.Fatal(err)
	}
	go func() { _ = engine.Wait() }() // should it end before the test does
	e.netns = fmt.Sprintf("/proc/%d/ns/net", engine.Process.Pid)
	eventually(t, "the engine answers", time.Minute, func() bool { return e.docker("version").code == 0 })
}

const liveRestore = "--live-restore"
