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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// Image is a container image to attack from within, in the private engine of
// test/engine.sh.
type Image struct {
	Name    string   `json:"name"`
	Ref     string   `json:"image,omitempty"`
	Network bool     `json:"network,omitempty"` // on a user-defined network, and not on the default bridge
	Options []string `json:"options,omitempty"` // of docker run
	Setup   string   `json:"setup,omitempty"`   // a command of the shell, as root in the running container, that confines it
	User    string   `json:"as,omitempty"`      // who the agent is, if Setup confines it; else it is the container's command

	// Proxy are the proxies that the agent is to use, with spaces between: URLs, or env:NAME for what a variable of the agent's
	// has. Wrap is the command that starts the agent's, and confines it.
	Proxy string   `json:"proxy,omitempty"`
	Wrap  []string `json:"wrap,omitempty"`

	Allowed   string `json:"allowed,omitempty"`
	Wildcard  string `json:"wildcard,omitempty"`
	Ours      bool   `json:"ours,omitempty"` // agent-init is its entrypoint
	Policy    string `json:"-"`              // the directory of its policy, where that is ours to change
	Workspace string `json:"-"`              // see Setting
	Open      bool   `json:"-"`
	Only      string `json:"-"` // the series that are tried, by their letters; "" is all
	Keys      bool   `json:"-"` // it is given those of APIs of models, which its policy lets the agent reach, and its policy has rules
}

const tool = "/usr/local/bin/poke" // in containers

// InEngine runs the image with its own entrypoint and with cmd/poke as its
// command, in an engine whose network namespace becomes the lab's internet.
// peer is an image for the container beside it.
func InEngine(tb lab.TB, netns, peer string, image Image) *Setting {
	tb.Helper()
	l := lab.New(tb, lab.Options{Within: netns})
	// What confines an image may look names up that we don't know: each has an address.
	l.DNS.SetAddrs("*", "45.32.0.1", "2a0f:32::1")
	l.DNS.SetAddrs(ruled, ruledAddrs...)
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

	if image.Keys {
		mode := os.FileMode(0o644) // as people make them
		if image.Ours {
			mode = 0o600
		}
		image.Options = append(slices.Clip(image.Options), "-v", written(tb, l.CA.PEM, 0o644)+":/etc/ssl/certs/ca-certificates.crt:ro",
			"-v", written(tb, []byte(Key(filed)+"\n"), mode)+":"+secrets+"/"+filed+":ro")
		for _, v := range keyVariables() {
			image.Options = append(image.Options, "-e", v)
		}
	}
	c := &container{engine: e, name: e.name("agent"), near: near, image: image}
	c.args = append([]string{"--network", network, "-v", l.Tool("poke") + ":" + tool + ":ro"}, image.Options...)
	c.Setting = &Setting{Name: image.Name, Lab: l, Allowed: image.Allowed, Wildcard: image.Wildcard, Resolver: resolver, EngineDNS: embedded,
		Ours: image.Ours, Starts: image.Ours, Guarded: image.Ours, Engine: true, Open: image.Open, Workspace: image.Workspace, Keys: image.Keys, Rules: image.Keys, Only: image.Only, Proxies: strings.Fields(image.Proxy)}
	c.scene()
	tb.Cleanup(func() { e.must("rm", "-f", c.name) })
	if err := c.start(); err != nil {
		tb.Fatalf("scorecard: %v", err)
	}
	return c.Setting
}

// written is a file of root's, to be mounted.
func written(tb lab.TB, data []byte, mode os.FileMode) string {
	tb.Helper()
	f, err := os.CreateTemp("", "agent-init-lab-mounted-")
	if err != nil {
		tb.Fatalf("scorecard: %v", err)
	}
	tb.Cleanup(func() {
		if err := os.Remove(f.Name()); err != nil {
			tb.Errorf("scorecard: %v", err)
		}
	})
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		tb.Fatalf("scorecard: %v", err)
	}
	return f.Name()
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
