package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/scorecard"
)

// boxes attacks agent-init in boxes of the lab, in one of its modes.
func (c *card) boxes(binary, mode string) {
	column := scorecard.Column{Title: "`" + mode + "`"}
	for _, backend := range scorecard.Backends() {
		c.attack(&column, func() *scorecard.Setting { return scorecard.InBox(c, binary, mode, backend) })
	}
	c.mustHold(column)
}

// ownImages are those that test/scorecard.sh makes.
type ownImages struct{ base, peer, script, policy string }

func imagesFlags() *ownImages {
	var o ownImages
	flag.StringVar(&o.base, "base", "", "`image` with agent-init as its entrypoint")
	flag.StringVar(&o.peer, "peer", "", "`image` of a plain Debian")
	flag.StringVar(&o.script, "script", "", "`image` of a Debian that a script for iptables confines")
	flag.StringVar(&o.policy, "policy", "", "`directory` with the allowlist and the script, to be mounted")
	return &o
}

// routed attacks from behind a gateway that is the agent's route, in boxes of the lab.
func (c *card) routed(binary string) {
	column := scorecard.Column{Title: "gateway, agent is root with Docker's default capabilities"}
	c.attack(&column, func() *scorecard.Setting { return scorecard.Behind(c, binary) })
	c.mustKeep(column)
}

// composed attacks from behind a gateway in an engine.
func (c *card) composed(own *ownImages, netns, policy string) {
	column := scorecard.Column{Title: "gateway, compose"}
	c.attack(&column, func() *scorecard.Setting { return scorecard.InCompose(c, netns, own.base, own.peer, policy) })
	c.mustKeep(column)
}

// mustKeep adds a column of a gateway's, in which most attacks must have been tried.
func (c *card) mustKeep(column scorecard.Column) {
	const fewest = 85
	if n := column.Count(scorecard.Blocked); n < fewest {
		c.Errorf("%s: only %d attacks are held", column.Title, n)
	}
	columns := c.columns
	c.mustHold(column)
	c.columns, c.gateways = columns, append(c.gateways, column)
}

// images attacks containers of an engine; behind: from behind a gateway alone.
func (c *card) images(own *ownImages, behind bool) {
	if own.base == "" {
		c.Logf("no images were named: containers of an engine are left out")
		return
	}
	netns, err := engineNS()
	if err != nil {
		c.Fatalf("%v", err)
	}
	policy, listed, shared := c.shared(own)
	c.composed(own, netns, policy)
	if behind {
		return
	}
	privileges := append([]string{"--cap-drop=ALL", "--cap-add=NET_ADMIN", "--cap-add=SETUID", "--cap-add=SETGID", "--cap-add=SETPCAP"}, shared...)
	ours := scorecard.Image{Ref: own.base, Options: append(slices.Clone(privileges), "-v", policy+":/etc/agent-init:ro"), Allowed: "api.anthropic.com", Wildcard: "cdn.test", Ours: true,
		Policy: policy, Workspace: "/workspace", Keys: true}
	for _, network := range []bool{false, true} {
		image := ours
		image.Network, image.Name = network, "Docker, bridge"
		if network {
			image.Name = "Docker, own network"
		}
		column := scorecard.Column{Title: image.Name}
		c.attack(&column, func() *scorecard.Setting { return scorecard.InEngine(c, netns, own.peer, image) })
		c.mustHold(column)
	}
	alone := scorecard.Column{Title: aloneTitle}
	c.attack(&alone, func() *scorecard.Setting {
		image := ours
		image.Name, image.Policy, image.Only = "allowlist alone", "", "KPR"
		image.Options = append(slices.Clone(privileges), "-v", listed+":/etc/agent-init:ro")
		return scorecard.InEngine(c, netns, own.peer, image)
	})
	c.columns = append(c.columns, alone)
	script := scorecard.Column{Title: "a script for iptables (1)"}
	c.attack(&script, func() *scorecard.Setting {
		return scorecard.InEngine(c, netns, own.peer, scorecard.Image{Name: "script", Ref: own.script, Allowed: "api.anthropic.com",
			Options: append([]string{"--cap-add=NET_ADMIN", "--cap-add=NET_RAW", "-v", filepath.Join(own.policy, "init-firewall.sh") + ":/init-firewall.sh:ro"}, shared...),
			Setup:   "bash /init-firewall.sh", User: "1000", Workspace: "/workspace"})
	})
	c.columns = append(c.columns, script)
	nothing := scorecard.Column{Title: "nothing (2)"}
	c.attack(&nothing, func() *scorecard.Setting {
		return scorecard.InEngine(c, netns, own.peer, scorecard.Image{Name: "nothing", Ref: own.peer, Options: shared,
			Allowed: "api.anthropic.com", Wildcard: "cdn.test", Workspace: "/workspace", Open: true, Keys: true})
	})
	// Some kernels lack a protocol, and some engines refuse a socket. But a table
	// in which little leaks without confinement says nothing of the others.
	if n := nothing.Count(scorecard.Leaked); n < 65 {
		c.Errorf("only %d attacks succeed in a container that nothing confines", n)
	}
	c.columns = append(c.columns, nothing)
}

// aloneTitle is of the column that only has the series of keys and of providers.
const aloneTitle = "an allowlist alone"

// shared makes the directories that outlive containers: of two policies, with the broker and with an allowlist alone, and
// the agent's own, of which programs are taken before the system's.
func (c *card) shared(own *ownImages) (policy, listed string, options []string) {
	dir, err := os.MkdirTemp("", "agent-init-scorecard-")
	if err != nil {
		c.Fatalf("%v", err)
	}
	c.last = append(c.last, func() error { return os.RemoveAll(dir) })
	policy, listed, workspace := filepath.Join(dir, "policy"), filepath.Join(dir, "listed"), filepath.Join(dir, "workspace")
	list, rerr := os.ReadFile(filepath.Join(own.policy, "allowlist.txt"))
	err = errors.Join(rerr, os.Chmod(dir, 0o755), os.Mkdir(policy, 0o755), os.Mkdir(listed, 0o755), os.Mkdir(workspace, 0o755), os.Chown(workspace, lab.AgentUID, lab.AgentUID),
		os.WriteFile(filepath.Join(policy, "allowlist.txt"), list, 0o644), os.WriteFile(filepath.Join(policy, "policy.yaml"), []byte(scorecard.Brokered()+scorecard.Ruled()), 0o644),
		os.WriteFile(filepath.Join(listed, "allowlist.txt"), []byte(string(list)+"\n"+scorecard.Listed()+scorecard.RuledWhole()), 0o644))
	if err != nil {
		c.Fatalf("%v", err)
	}
	return policy, listed, []string{"-v", workspace + ":/workspace",
		"-e", "PATH=/usr/local/sbin:/usr/local/bin:/workspace/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
}

// mustHold adds a column of agent-init's own.
func (c *card) mustHold(column scorecard.Column) {
	column.Ours = true
	if leaks := scorecard.Leaks(column); leaks != "" {
		c.Errorf("%s leaks: %s", column.Title, strings.ReplaceAll(strings.TrimSpace(leaks), "\n", "; ")) // one line of the log's end
	}
	c.columns = append(c.columns, column)
}

// engineNS is the network namespace of the private engine.
func engineNS() (string, error) {
	socket, ok := strings.CutPrefix(os.Getenv("DOCKER_HOST"), "unix://")
	if !ok {
		return "", fmt.Errorf("DOCKER_HOST does not name the engine of test/engine.sh: use test/scorecard.sh")
	}
	pid, err := os.ReadFile(filepath.Join(filepath.Dir(socket), "docker.pid"))
	if err != nil {
		return "", fmt.Errorf("DOCKER_HOST is not the engine of test/engine.sh: %w", err)
	}
	return filepath.Join("/proc", strings.TrimSpace(string(pid)), "ns/net"), nil
}
