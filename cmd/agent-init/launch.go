package main

import (
	"flag"
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

// spell puts the flags of run that a remedy names into the words of l.
func (l launch) spell(remedy string) string {
	if l == byHand {
		return remedy
	}
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	configFlags(fs)
	superviseFlags(fs)
	return flagWithValue.ReplaceAllStringFunc(remedy, func(s string) string {
		m := flagWithValue.FindStringSubmatch(s)
		if fs.Lookup(m[1]) == nil {
			return s
		}
		return l.setting(m[1], m[2])
	})
}
