package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// launch is what has started this container, by the marks that it leaves inside:
// a remedy is to be in the words of who reads it.
type launch string

const (
	byHand       launch = "" // the command line was typed here, or nothing is known
	byDocker     launch = "docker"
	byPodman     launch = "podman"
	byKubernetes launch = "kubernetes"
	byDevTool    launch = "devcontainer"
)

// launchHere says what has started this process.
func launchHere(env map[string]string) launch {
	if os.Getpid() != 1 {
		return byHand
	}
	return launchOf(env, func(path string) bool { _, err := os.Lstat(path); return err == nil })
}

func launchOf(env map[string]string, exists func(path string) bool) launch {
	switch {
	case env["REMOTE_CONTAINERS"] != "" || env["DEVCONTAINER"] != "" || env["CODESPACES"] != "":
		return byDevTool
	case env["KUBERNETES_SERVICE_HOST"] != "":
		return byKubernetes
	case exists("/run/.containerenv"):
		return byPodman
	case exists("/.dockerenv"):
		return byDocker
	}
	return byHand
}

// setting is how a setting of agent-init run is spelled, which a person who has
// started an image can't give as a flag.
func (l launch) setting(name, value string) string {
	if l == byHand {
		return "--" + name + " " + value
	}
	return l.variable(variableOf(name), value)
}

// variable is how a variable is given to the container.
func (l launch) variable(name, value string) string {
	switch l {
	case byDocker:
		return fmt.Sprintf("-e %s=%s (compose: environment)", name, value)
	case byPodman:
		return fmt.Sprintf("-e %s=%s", name, value)
	case byKubernetes:
		return fmt.Sprintf("env: [{name: %s, value: %q}]", name, value)
	case byDevTool:
		return fmt.Sprintf(`"containerEnv": {%q: %q}`, name, value)
	}
	return name + "=" + value
}

// capabilities is how capabilities are given to the container.
func (l launch) capabilities(names ...string) string {
	list := strings.Join(names, ", ")
	docker := "--cap-add=" + strings.Join(names, " --cap-add=")
	switch l {
	case byDocker:
		return fmt.Sprintf("docker run %s (compose: cap_add: [%s])", docker, list)
	case byPodman:
		return "podman run " + docker
	case byKubernetes:
		return fmt.Sprintf("securityContext: {capabilities: {add: [%s]}}", list)
	case byDevTool:
		return fmt.Sprintf(`"capAdd": ["%s"] in devcontainer.json`, strings.Join(names, `", "`))
	}
	return fmt.Sprintf("docker: %s; compose: cap_add: [%s]; kubernetes: securityContext: {capabilities: {add: [%s]}}", docker, list, list)
}

// flagWithValue is a flag in a sentence. A dot that follows ends the sentence.
var flagWithValue = regexp.MustCompile(`--([a-z][a-z-]*) ([a-z0-9]+)`)

// spell puts the flags that a remedy names into the words of l, if they are settings.
func (l launch) spell(remedy string, isSetting func(flag string) bool) string {
	if l == byHand {
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

func moreTasks() higher {
	return higher{"--pids-limit=256", "pids_limit: 256", "podPidsLimit in the kubelet's configuration"}
}

func moreFiles() higher {
	return higher{"--ulimit=nofile=1024", "ulimits: {nofile: 1024}", "LimitNOFILE of the container runtime's service"}
}

// raise says how, and not lower: the agent's own processes need room as well.
func (l launch) raise(h higher) string {
	switch l {
	case byDocker:
		return "docker run " + h.option + ", or more (compose: " + h.compose + ")"
	case byPodman:
		return "podman run " + h.option + ", or more"
	case byKubernetes:
		return "raise " + h.kubernetes
	case byDevTool:
		return `"runArgs": ["` + h.option + `"] in devcontainer.json, or more`
	}
	return "raise the limit: docker: " + h.option + "; compose: " + h.compose + "; kubernetes: " + h.kubernetes
}

// variableOf is the variable behind a flag.
func variableOf(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// envPrefix starts the name of the environment variable behind each flag:
// --config is AGENT_INIT_CONFIG. None of them reaches the agent.
const envPrefix = "AGENT_INIT_"
