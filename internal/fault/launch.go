package fault

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Launch is what has started this container, by the marks that it leaves inside:
// a remedy is to be in the words of who reads it.
type Launch string

const (
	ByHand       Launch = "" // the command line was typed here, or nothing is known
	ByDocker     Launch = "docker"
	ByPodman     Launch = "podman"
	ByKubernetes Launch = "kubernetes"
	ByDevTool    Launch = "devcontainer"
)

// LaunchHere says what has started this process.
func LaunchHere(env map[string]string) Launch {
	if os.Getpid() != 1 {
		return ByHand
	}
	return LaunchOf(env, func(path string) bool { _, err := os.Lstat(path); return err == nil })
}

// LaunchOf says what has started a container with that environment, and such files.
func LaunchOf(env map[string]string, exists func(path string) bool) Launch {
	switch {
	case env["REMOTE_CONTAINERS"] != "" || env["DEVCONTAINER"] != "" || env["CODESPACES"] != "":
		return ByDevTool
	case env["KUBERNETES_SERVICE_HOST"] != "":
		return ByKubernetes
	case exists("/run/.containerenv"):
		return ByPodman
	case exists("/.dockerenv"):
		return ByDocker
	}
	return ByHand
}

// setting is how a setting of agent-init run is spelled, which a person who has
// started an image can't give as a flag.
func (l Launch) setting(name, value string) string {
	if l == ByHand {
		return "--" + name + " " + value
	}
	return l.Variable(VariableOf(name), value)
}

// Variable is how a variable is given to the container.
func (l Launch) Variable(name, value string) string {
	switch l {
	case ByDocker:
		return fmt.Sprintf("-e %s=%s (compose: environment)", name, value)
	case ByPodman:
		return fmt.Sprintf("-e %s=%s", name, value)
	case ByKubernetes:
		return fmt.Sprintf("env: [{name: %s, value: %q}]", name, value)
	case ByDevTool:
		return fmt.Sprintf(`"containerEnv": {%q: %q}`, name, value)
	}
	return name + "=" + value
}

// Capabilities is how capabilities are given to the container.
func (l Launch) Capabilities(names ...string) string {
	list := strings.Join(names, ", ")
	docker := "--cap-add=" + strings.Join(names, " --cap-add=")
	switch l {
	case ByDocker:
		return fmt.Sprintf("docker run %s (compose: cap_add: [%s])", docker, list)
	case ByPodman:
		return "podman run " + docker
	case ByKubernetes:
		return fmt.Sprintf("securityContext: {capabilities: {add: [%s]}}", list)
	case ByDevTool:
		return fmt.Sprintf(`"capAdd": ["%s"] in devcontainer.json`, strings.Join(names, `", "`))
	}
	return fmt.Sprintf("docker: %s; compose: cap_add: [%s]; kubernetes: securityContext: {capabilities: {add: [%s]}}", docker, list, list)
}

// flagWithValue is a flag in a sentence. A dot that follows ends the sentence.
var flagWithValue = regexp.MustCompile(`--([a-z][a-z-]*) ([a-z0-9]+)`)

// Spell puts the flags that a remedy names into the words of l, if they are settings.
func (l Launch) Spell(remedy string, isSetting func(flag string) bool) string {
	if l == ByHand {
		return remedy
	}
	return flagWithValue.ReplaceAllStringFunc(remedy, func(s string) string {
		m := flagWithValue.FindStringSubmatch(s)
		if !isSetting(m[1]) {
			return s
		}
		return l.setting(m[1], m[2])
	})
}

// higher is how a limit is raised, in the words of what starts containers.
type higher struct{ option, compose, kubernetes string }

// MoreTasks says how more processes and threads are allowed.
func (l Launch) MoreTasks() string {
	return l.raise(higher{"--pids-limit=256", "pids_limit: 256", "podPidsLimit in the kubelet's configuration"})
}

// MoreFiles says how more open files are allowed.
func (l Launch) MoreFiles() string {
	return l.raise(higher{"--ulimit=nofile=1024", "ulimits: {nofile: 1024}", "LimitNOFILE of the container runtime's service"})
}

// raise says how, and not lower: the agent's own processes need room as well.
func (l Launch) raise(h higher) string {
	switch l {
	case ByDocker:
		return "docker run " + h.option + ", or more (compose: " + h.compose + ")"
	case ByPodman:
		return "podman run " + h.option + ", or more"
	case ByKubernetes:
		return "raise " + h.kubernetes
	case ByDevTool:
		return `"runArgs": ["` + h.option + `"] in devcontainer.json, or more`
	}
	return "raise the limit: docker: " + h.option + "; compose: " + h.compose + "; kubernetes: " + h.kubernetes
}

// VariableOf is the variable behind a flag.
func VariableOf(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// EnvPrefix starts the name of the environment variable behind each flag:
// --config is AGENT_INIT_CONFIG. None of them reaches the agent.
const EnvPrefix = "AGENT_INIT_"
