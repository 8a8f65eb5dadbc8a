package container

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// usurpedAddr is what the agent says where every name is.
const usurpedAddr = "185.199.108.153"

// TestContainerEngineGone: Docker's own DNS server ends with the engine, while the
// containers live on. The agent waits for its ports, takes them, and answers in its
// place; then the engine comes back.
func TestContainerEngineGone(t *testing.T) {
	e := needEngine(t)
	n := &internet{everyName: true}
	n.start(t, e)
	poke := buildPoke(t)
	e.restart(t, true, nil) // the containers are to live on
	t.Cleanup(func() { e.restart(t, false, nil) })
	network := e.unique(t)
	e.must(t, "network", "create", network)
	t.Cleanup(func() { e.docker("network", "rm", network) })

	list := allow(t, "*.openai.com\n")
	begin := func(more ...string) *victim {
		v := &victim{engine: e, name: e.name(t), uid: "1000"}
		e.must(t, args([]string{"run", "-d", "--network", network, "--name", v.name, "-v", poke + ":/usr/local/bin/poke:ro"}, privileges(), list, more)...)
		return v
	}
	run := begin(e.base, "sleep", "infinity")
	up := begin("--entrypoint", "/bin/sleep", e.base, "infinity")
	e.must(t, "exec", up.name, "/usr/local/bin/agent-init", "up")
	sidecar := begin("--entrypoint", "/usr/local/bin/agent-init", e.base, "sidecar")
	pod := &victim{engine: e, name: e.name(t), uid: "0", guard: sidecar.name}
	e.must(t, "run", "-d", "--network", "container:"+sidecar.name, "--name", pod.name, "--cap-drop=ALL", "-v", poke+":/usr/local/bin/poke:ro",
		"--entrypoint", "/bin/sleep", e.base, "infinity")
	victims := []*victim{run, up, pod}
	for _, v := range victims {
		v.begin(t)
	}
	for _, how := range []string{"stopped", "killed"} {
		pids, logs := map[*victim]string{}, map[*victim]*said{}
		for _, v := range victims {
			pids[v] = e.must(t, "inspect", "--format", "{{.State.Pid}}", v.name)
			logs[v] = v.usurp(t, pids[v])
		}
		e.restartBy(t, true, map[string]syscall.Signal{"stopped": syscall.SIGTERM, "killed": syscall.SIGKILL}[how], func() {
			for _, v := range victims {
				eventually(t, "the agent has the engine's ports", time.Minute, func() bool {
					return strings.Contains(logs[v].String(), "seated udp") && strings.Contains(logs[v].String(), "seated tcp")
				})
				for i := range 2 {
					out := v.inside(t, pids[v], "resolve", fmt.Sprintf("%s%d.openai.com", how, i))
					if strings.Contains(out, usurpedAddr) {
						t.Errorf("%s, %s: the agent has answered: %s", v.name, how, out)
					}
				}
			}
		})
		for _, v := range victims {
			if v.guard != "" { // which does not take another engine's word
				if out := v.inside(t, pids[v], "resolve", "again-"+how+".openai.com"); strings.Contains(out, `"ok":true`) {
					t.Errorf("%s: believes another engine: %s", v.name, out)
				}
				v.stop(t)
				e.must(t, "restart", "-t", "1", v.guard)
				e.must(t, "restart", "-t", "1", v.name)
			}
			v.stop(t)
			v.begin(t)
		}
	}
}

// victim is a container of the agent's.
type victim struct {
	engine    *engine
	name, uid string
	guard     string // where agent-init is, if elsewhere
	usurper   *exec.Cmd
}

// begin waits until names are resolved.
func (v *victim) begin(t *testing.T) {
	t.Helper()
	eventually(t, v.name+" resolves names by way of the engine", time.Minute, func() bool {
		r := v.engine.docker("exec", "-u", v.uid, v.name, "poke", "resolve", fmt.Sprintf("n%d.openai.com", time.Now().UnixNano()))
		return strings.Contains(r.stdout, `"ok":true`)
	})
}

// inside runs an operation of poke's as the agent, without the engine's help.
func (v *victim) inside(t *testing.T, pid string, op ...string) string {
	t.Helper()
	out, err := v.enter(pid, op...).Output()
	if err != nil && len(out) == 0 {
		t.Errorf("%v in %s: %v", op, v.name, err)
	}
	return string(out)
}

func (v *victim) enter(pid string, op ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--target", pid, "--all", "setpriv", "--reuid", v.uid, "--clear-groups", "--bounding-set=-all", "--inh-caps=-all",
		"/usr/local/bin/poke"}, op...)...)
}

// usurp has the agent wait for the engine's ports.
func (v *victim) usurp(t *testing.T, pid string) *said {
	t.Helper()
	s := &said{}
	v.usurper = v.enter(pid, "usurp", "-for", "10m", "127.0.0.11:0", usurpedAddr)
	v.usurper.Stderr = s
	// nsenter forks to be in the container's pid namespace: the two end together.
	v.usurper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := v.usurper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.stop(t) })
	eventually(t, "the agent watches", time.Minute, func() bool { return strings.Contains(s.String(), "watching") })
	return s
}

func (v *victim) stop(t *testing.T) {
	t.Helper()
	if v.usurper == nil {
		return
	}
	_ = syscall.Kill(-v.usurper.Process.Pid, syscall.SIGKILL) // it may have ended with its container
	_ = v.usurper.Wait()
	v.usurper = nil
}

// said is what a process prints, to be looked at meanwhile.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
