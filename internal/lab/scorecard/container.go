package scorecard

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/internal/lab"
)

// container is a Setting in an engine.
type container struct {
	*Setting
	engine *engine
	name   string
	args   []string // of docker run
	image  Image
	near   netip.Addr
	agent  *obeying
}

// poke is the command of an operation, within what confines it.
func (c *container) poke(args ...string) []string {
	return slices.Concat(c.image.Wrap, []string{tool}, args)
}

// start runs the container, or goes on with it where it was started again.
func (c *container) start() error {
	again := c.Box != nil
	switch {
	case c.image.Setup == "" && again:
		c.agent = c.engine.start("attach", c.name)
	case c.image.Setup == "":
		c.agent = c.engine.start(slices.Concat([]string{"run", "-i", "--name", c.name}, c.args, []string{c.image.Ref}, c.poke("obey"))...)
	default:
		if !again {
			if _, err := c.engine.docker(slices.Concat([]string{"run", "-d", "--name", c.name}, c.args, []string{c.image.Ref, "sleep", "infinity"})...); err != nil {
				return err
			}
		}
		out, err := c.engine.docker("exec", "-u", "root", c.name, "sh", "-c", c.image.Setup)
		if err != nil {
			return fmt.Errorf("the set-up of %s fails: %w", c.image.Ref, err)
		}
		if out = strings.TrimSpace(out); out != "" {
			c.engine.tb.Logf("%s", out)
		}
		c.agent = c.engine.start(append([]string{"exec", "-i", "-u", c.image.User, c.name}, c.poke("obey")...)...)
	}
	c.Agent = c.agent.do
	if _, err := c.agent.do("socket", "unix", "stream", "0"); err != nil { // also waits for the start
		return fmt.Errorf("%s does not run its command: %w\n%s", c.image.Ref, err, c.agent.said())
	}
	out, err := c.engine.docker("inspect", "--format", "{{.State.Pid}}", c.name)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		return err
	}
	c.Box = c.Lab.Attach(pid, c.near)
	return nil
}

// scene is what can happen to the container: to anybody's, that it ends and starts
// again, and that another is started.
func (c *container) scene() {
	c.Restart = func() error {
		c.remember()
		c.Box.Detach()
		if _, err := c.engine.docker("restart", "-t", "1", c.name); err != nil {
			return err
		}
		return c.start()
	}
	c.Fresh = c.fresh
	user := c.image.User
	if c.image.Setup == "" {
		user = "" // the image's own; for an agent that an entrypoint starts, whoever that is
		if c.image.Ours {
			user = fmt.Sprint(lab.AgentUID)
		}
	}
	c.Enter = func(args ...string) (lab.Poke, error) {
		out, err := c.engine.docker(slices.Concat([]string{"exec", "-u", user, c.name}, c.poke(args...))...)
		if err != nil {
			return lab.Poke{}, err
		}
		return lab.ParsePoke(out)
	}
	if !c.image.Ours {
		return
	}
	root := func(args ...string) (string, error) {
		return c.engine.docker(append([]string{"exec", "-u", "root", c.name}, args...)...)
	}
	c.Log = func() (string, error) { return root("cat", "/var/log/agent-init/audit.jsonl") }
	if c.image.Policy != "" {
		c.Reload = func(list string) error {
			err := os.WriteFile(filepath.Join(c.image.Policy, filepath.Base(allowlistFile)), []byte(list), 0o644)
			_, rerr := root("agent-init", "reload")
			return errors.Join(err, rerr)
		}
	}
}

// fresh runs another container. Where a command confines it, it is entered
// whether or not that succeeds: that is how such containers are used.
func (c *container) fresh(change []string, args ...string) (p lab.Poke, ran bool, err error) {
	options := slices.Clone(c.args)
	for _, o := range change {
		if added, is := strings.CutPrefix(o, "+"); is {
			options = append(options, added)
		} else {
			options = slices.DeleteFunc(options, func(other string) bool { return other == o })
		}
	}
	name := c.engine.name("fresh")
	defer func() {
		if _, rerr := c.engine.docker("rm", "-f", name); rerr != nil && err == nil {
			err = rerr
		}
	}()
	run := func(how string, command ...string) (string, error) {
		return c.engine.docker(slices.Concat([]string{"run", how, "--name", name}, options, []string{c.image.Ref}, command)...)
	}
	command := c.poke(args...)
	var out string
	if c.image.Setup == "" {
		out, err = run("-i", command...)
	} else if out, err = run("-d", "sleep", "infinity"); err == nil {
		_, _ = c.engine.docker("exec", "-u", "root", name, "sh", "-c", c.image.Setup)
		out, err = c.engine.docker(slices.Concat([]string{"exec", "-u", c.image.User, name}, command)...)
	}
	for line := range strings.Lines(out) {
		if p, bad := lab.ParsePoke(line); bad == nil {
			return p, true, nil
		}
	}
	if err == nil {
		return p, false, fmt.Errorf("neither refused nor started: %s", out)
	}
	return p, false, nil
}
