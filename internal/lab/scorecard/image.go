package scorecard

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// Image is a container image to attack from within, in the private engine of
// test/engine.sh.
type Image struct {
	Name    string
	Ref     string   // of the image
	Network bool     // on a user-defined network, and not on the default bridge
	Options []string // of docker run
	Setup   string   // a command of the shell, as root in the running container, that confines it
	User    string   // who the agent is, if Setup confines it; else it is the container's command

	Allowed, Wildcard string
	Ours              bool // agent-init is its entrypoint
	Open              bool
}

// InEngine runs the image with its own entrypoint and with cmd/poke as its
// command, in an engine whose network namespace becomes the lab's internet.
// peer is an image for the container beside it.
func InEngine(tb lab.TB, netns, peer string, image Image) *Setting {
	tb.Helper()
	l := lab.New(tb, lab.Options{Within: netns})
	// What confines an image may look names up that we don't know: each has an address.
	l.DNS.SetAddrs("*", "45.32.0.1", "2a0f:32::1")
	if image.Wildcard != "" {
		l.DNS.SetAddrs("*."+image.Wildcard, "45.30.0.21", "2a0f:30::21")
	}
	e := &engine{tb: tb}
	network := "bridge"
	resolver := netip.MustParseAddr("9.9.9.9") // what test/engine.sh tells the engine
	var embedded netip.Addr
	if image.Network {
		network = e.name("net")
		resolver, embedded = netip.MustParseAddr("127.0.0.11"), netip.MustParseAddr("127.0.0.11")
		e.must("network", "create", network)
		tb.Cleanup(func() { e.must("network", "rm", network) })
	}
	neighbour := e.name("peer")
	e.must("run", "-d", "--name", neighbour, "--network", network, "--entrypoint=sleep", peer, "infinity")
	tb.Cleanup(func() { e.must("rm", "-f", neighbour) })
	near := netip.MustParseAddr(e.must("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", neighbour))

	name := e.name("agent")
	const tool = "/usr/local/bin/poke"
	args := []string{"run", "-i", "--name", name, "--network", network, "-v", l.Tool("poke") + ":" + tool + ":ro"}
	args = append(args, image.Options...)
	s := &Setting{Name: image.Name, Lab: l, Allowed: image.Allowed, Wildcard: image.Wildcard, Resolver: resolver, EngineDNS: embedded,
		Ours: image.Ours, Starts: image.Ours, Open: image.Open}
	tb.Cleanup(func() { e.must("rm", "-f", name) })
	if image.Setup == "" {
		agent := e.start(append(args, image.Ref, tool, "obey")...)
		if _, err := agent.do("socket", "unix", "stream", "0"); err != nil { // also waits for the start
			tb.Fatalf("scorecard: %s does not run its command: %v\n%s", image.Ref, err, agent.said())
		}
		s.Agent = agent.do
	} else {
		e.must(append([]string{"run", "-d"}, append(args[2:], image.Ref, "sleep", "infinity")...)...)
		if out, err := e.docker("exec", "-u", "root", name, "sh", "-c", image.Setup); err != nil {
			tb.Fatalf("scorecard: the set-up of %s fails: %v", image.Ref, err)
		} else {
			tb.Logf("%s", strings.TrimSpace(out))
		}
		s.Agent = e.start("exec", "-i", "-u", image.User, name, tool, "obey").do
	}
	pid, err := strconv.Atoi(e.must("inspect", "--format", "{{.State.Pid}}", name))
	if err != nil {
		tb.Fatalf("scorecard: %v", err)
	}
	s.Box = l.Attach(pid, near)
	return s
}

// engine is the client of the private engine, which DOCKER_HOST names.
type engine struct {
	tb     lab.TB
	serial int
}

func (e *engine) name(what string) string {
	e.serial++
	return fmt.Sprintf("scorecard-%s-%d-%d", what, os.Getpid(), e.serial)
}

func (e *engine) docker(args ...string) (string, error) {
	cmd := exec.Command("docker", args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (e *engine) must(args ...string) string {
	e.tb.Helper()
	out, err := e.docker(args...)
	if err != nil {
		e.tb.Fatalf("scorecard: %v", err)
	}
	return strings.TrimSpace(out)
}

// obeying is a poke in a container that does what it is told.
type obeying struct {
	in     io.WriteCloser
	out    chan string // its lines
	errors *lockedBuffer
}

func (e *engine) start(args ...string) *obeying {
	e.tb.Helper()
	cmd := exec.Command("docker", args...)
	o := &obeying{out: make(chan string), errors: &lockedBuffer{}}
	cmd.Stderr = o.errors
	in, ierr := cmd.StdinPipe()
	out, oerr := cmd.StdoutPipe()
	if err := errors.Join(ierr, oerr); err != nil {
		e.tb.Fatalf("scorecard: %v", err)
	}
	if err := cmd.Start(); err != nil {
		e.tb.Fatalf("scorecard: %v", err)
	}
	o.in = in
	stop := make(chan struct{})
	go func() {
		defer close(o.out)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), `{"`) { // what the image itself prints is not for us
				select {
				case o.out <- lines.Text():
				case <-stop:
					return
				}
			}
		}
	}()
	e.tb.Cleanup(func() {
		close(stop)
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return o
}

func (o *obeying) said() string { return o.errors.String() }

// do has one operation done.
func (o *obeying) do(args ...string) (lab.Poke, error) {
	line, err := json.Marshal(args)
	if err != nil {
		return lab.Poke{}, err
	}
	if _, err := o.in.Write(append(line, '\n')); err != nil {
		return lab.Poke{}, err
	}
	select {
	case line, open := <-o.out:
		if !open {
			return lab.Poke{}, errors.New("it has ended: " + o.said())
		}
		return lab.ParsePoke(line)
	case <-time.After(2 * time.Minute):
		return lab.Poke{}, errors.New("no answer within two minutes: " + o.said())
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
