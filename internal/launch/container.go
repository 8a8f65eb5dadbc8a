package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/lazy"
)

// Container is one that an image of agent-init's was started as. All but its ID and name may have been chosen by who made
// the image.
type Container struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Agent   string    `json:"agent"` // claude, codex, …: by the image's label
	Image   string    `json:"image"`
	Dir     string    `json:"dir,omitempty"` // of the host's that is the workspace
	Status  string    `json:"status"`        // running, exited, created, paused, …
	Running bool      `json:"running"`
	Created time.Time `json:"created"`
}

// The labels of an image.
const (
	agentLabel  = "org.agent-init.agent"
	routesLabel = "org.agent-init.routes" // of the broker, which want a key
)

const workspace = "/workspace"

// List returns all containers with an agent, the newest first, also those that have ended.
func (e Engine) List(ctx context.Context) ([]Container, error) {
	all, err := inspected[containerJSON](ctx, e, "container", "ps", "-a", "-q", "--no-trunc", "--filter", "label="+agentLabel)
	var list []Container
	for _, in := range all {
		if c := in.container(); c.Agent != "" { // else it is there for an image to be looked at
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b Container) int { return b.Created.Compare(a.Created) })
	return list, err
}

// containerJSON is what docker, podman and nerdctl say of a container in the same words.
type containerJSON struct {
	ID, Name, ImageName string
	Created             time.Time
	State               struct {
		Status  string
		Running bool
	}
	Config struct {
		Image  string
		Labels map[string]string
	}
	Mounts []struct{ Type, Source, Destination string }
}

func (in containerJSON) container() Container {
	c := Container{
		ID: in.ID, Name: strings.TrimPrefix(in.Name, "/"), Agent: in.Config.Labels[agentLabel], Image: in.Config.Image,
		Status: in.State.Status, Running: in.State.Running, Created: in.Created,
	}
	if in.ImageName != "" { // podman's
		c.Image = in.ImageName
	}
	for _, m := range in.Mounts {
		if m.Destination == workspace && m.Type == "bind" {
			c.Dir = m.Source
		}
	}
	return c
}

// inside is where agent-init is in every image. The engine would look its bare name up as root.
const inside = "/usr/local/bin/agent-init"

// nameOf is what a container may be called, by docker's own rule.
var nameOf = lazy.Pattern(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// Exec is a command of agent-init's, run in a container as root. On a terminal the caller's own becomes the command's.
func (e Engine) Exec(ctx context.Context, tty bool, container string, args ...string) (*exec.Cmd, error) {
	if !nameOf().MatchString(container) {
		return nil, fmt.Errorf("%q can't be the name of a container", container)
	}
	words := []string{"exec", "-i"}
	if tty {
		words = []string{"exec", "-it"}
		for _, v := range terminalOf(os.Getenv) {
			words = append(words, "-e", v)
		}
	}
	return exec.CommandContext(ctx, e.Path, slices.Concat(words, []string{"--user=0:0", container, inside}, args)...), nil
}

// Stop ends a container as its engine does: the agent is asked, and has some seconds.
func (e Engine) Stop(ctx context.Context, container string) error {
	if !nameOf().MatchString(container) {
		return fmt.Errorf("%q can't be the name of a container", container)
	}
	_, err := e.ask(ctx, "stop", container)
	return err
}
