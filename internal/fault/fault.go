// Package fault has what a command ends with: an exit code, one cause and one remedy.
package fault

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/agent-init/agent-init/internal/lazy"
)

// Exit codes of agent-init itself (sysexits.h where one fits). Everything else is that of the
// command that it ran: its exit code, or 128+n if signal n ended it.
const (
	OK           = 0
	Failure      = 1   // status: no; and what has no code of its own
	Usage        = 64  // EX_USAGE
	SelfTest     = 70  // EX_SOFTWARE: the confinement could not be proved
	Rules        = 71  // EX_OSERR: the kernel refused the rules
	Privilege    = 77  // EX_NOPERM: a capability is missing
	Policy       = 78  // EX_CONFIG: bad policy or allowlist
	TerminalLost = 3   // of the client on the container's terminal: there is nothing to show on any more
	TurnedDown   = 4   // request --wait: a person said no
	Denied       = 5   // request --wait: a person denied what was asked for
	Forgotten    = 6   // request --wait: nobody decided, and it waits no more
	TimedOut     = 75  // EX_TEMPFAIL; request --wait: nobody has decided yet
	NoExec       = 126 // the command is not executable
	NotFound     = 127 // the command was not found
)

// Fault is an error that ends a command: what went wrong, what to do about it,
// and the exit code that tells a script the same.
type Fault struct {
	Code   int
	Cause  error
	Remedy string
}

func (f *Fault) Error() string { return f.Cause.Error() }
func (f *Fault) Unwrap() error { return f.Cause }

// New makes a fault. The cause is formatted as by fmt.Errorf.
func New(code int, remedy, format string, args ...any) *Fault {
	return &Fault{Code: code, Cause: fmt.Errorf(format, args...), Remedy: remedy}
}

// Of is the fault that err is, or one of its own for what failed while doing that.
func Of(err error, doing string) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return New(Rules, "run it again with --log-level debug", "%s: %w", doing, err)
}

// Status carries the exit status of a command that ran: nothing is printed.
type Status int

func (s Status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Report writes err for a person, and returns the exit code that it stands for.
func Report(w io.Writer, err error) int {
	var st Status
	if err == nil || errors.As(err, &st) {
		return int(st)
	}
	f := &Fault{Failure, err, "see agent-init status, or run agent-init doctor as root"}
	errors.As(err, &f)
	fmt.Fprintf(w, "agent-init: %s\n", strings.TrimRight(f.Error(), "\n"))
	if f.Remedy != "" {
		fmt.Fprintf(w, "  remedy: %s\n", f.Remedy)
	}
	return f.Code
}

// Warn is one line of cause and one of remedy that stop nothing.
func Warn(w io.Writer, cause, remedy string) {
	fmt.Fprintf(w, "agent-init: warning: %s\n  remedy: %s\n", cause, remedy)
}

// Program is what this program is called.
const Program = "agent-init"

// EnvPrefix starts the name of the environment variable behind each flag:
// --config is AGENT_INIT_CONFIG. None of them reaches the agent.
const EnvPrefix = "AGENT_INIT_"

// VariableOf is the variable behind a flag.
func VariableOf(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

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
	return launchOf(env, exists)
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// launchOf says what has started a container with that environment, and such files.
func launchOf(env map[string]string, exists func(path string) bool) Launch {
	if env["REMOTE_CONTAINERS"] != "" || env["DEVCONTAINER"] != "" || env["CODESPACES"] != "" {
		return ByDevTool
	}
	return engine(env, exists)
}

func engine(env map[string]string, exists func(path string) bool) Launch {
	switch {
	case env["KUBERNETES_SERVICE_HOST"] != "":
		return ByKubernetes
	case exists("/run/.containerenv"):
		return ByPodman
	case exists("/.dockerenv"):
		return ByDocker
	}
	return ByHand
}

// outside is how a command is run in this container from outside; empty without an engine.
func outside(env map[string]string, hostname string, exists func(path string) bool) string {
	by, id := engine(env, exists), "CONTAINER"
	if len(hostname) == 12 && strings.Trim(hostname, "0123456789abcdef") == "" { // the engine's choice
		id = hostname
	}
	switch {
	case by == ByKubernetes && hostname != "": // a pod's name is its host's
		return "kubectl exec -it " + hostname + " -- "
	case by == ByPodman || by == ByDocker:
		return string(by) + " exec -it " + id + " "
	}
	return ""
}

// AttachFromOutside is the command that attaches from outside of the container. It
// names this program by its path: an engine would look its name up on PATH, as root.
func AttachFromOutside(env map[string]string) string {
	hostname, _ := os.Hostname()
	how := outside(env, hostname, exists)
	self, err := os.Executable()
	if how == "" || err != nil {
		self = Program
	}
	return how + self + " attach"
}

// ComeBack is the command that attaches again, for who has left: a process whose parent
// is in no namespace of ours was started from outside, and there its person is now.
func ComeBack(env map[string]string, parent int) string {
	if parent == 0 {
		return AttachFromOutside(env)
	}
	return Program + " attach"
}

// phrases are how a container is given what it lacks, in the words of what has started it.
var phrases = map[Launch]struct {
	variable     string // name, value
	capabilities string // as options, as a list, as a list of quoted words
	limit        string // as an option, in a compose file, in Kubernetes
	root         string // how it is started as root
}{
	ByHand: {
		"%[1]s=%[2]s",
		"docker: %[1]s; compose: cap_add: [%[2]s]; kubernetes: securityContext: {capabilities: {add: [%[2]s]}}",
		"raise the limit: docker: %[1]s; compose: %[2]s; kubernetes: %[3]s",
		"start it as root",
	},
	ByDocker: {
		"-e %[1]s=%[2]s (compose: environment)",
		"docker run %[1]s (compose: cap_add: [%[2]s])",
		"docker run %[1]s, or more (compose: %[2]s)",
		"take USER out of the image's Dockerfile, or start it with docker run --user=0 (compose: user: \"0\")",
	},
	ByPodman: {
		"-e %[1]s=%[2]s", "podman run %[1]s", "podman run %[1]s, or more",
		"take USER out of the image's Dockerfile, or start it with podman run --user=0",
	},
	ByKubernetes: {
		"env: [{name: %[1]s, value: %[2]q}]",
		"securityContext: {capabilities: {add: [%[2]s]}}",
		"raise %[3]s",
		"securityContext: {runAsUser: 0, runAsNonRoot: false} for this container (its image has a USER, or the pod names one)",
	},
	ByDevTool: {
		`"containerEnv": {%[1]q: %[2]q}`,
		`"capAdd": ["%[3]s"] in devcontainer.json`,
		`"runArgs": ["%[1]s"] in devcontainer.json, or more`,
		`"containerUser": "root" in devcontainer.json, and no USER in the image's Dockerfile`,
	},
}

// Variable is how a variable is given to the container.
func (l Launch) Variable(name, value string) string {
	return fmt.Sprintf(phrases[l].variable, name, value)
}

// Capabilities is how capabilities are given to the container.
func (l Launch) Capabilities(names ...string) string {
	return fmt.Sprintf(phrases[l].capabilities,
		"--cap-add="+strings.Join(names, " --cap-add="), strings.Join(names, ", "), strings.Join(names, `", "`))
}

// AsRoot says how the container is started as root. An image's USER and docker run --user look alike from inside.
func (l Launch) AsRoot() string { return phrases[l].root }

// MoreTasks says how more processes and threads are allowed than now. It raises that limit, and never to what is just
// enough: the agent's own processes need room as well.
func (l Launch) MoreTasks(now uint64) string {
	n := more(now, 256)
	return fmt.Sprintf(phrases[l].limit, fmt.Sprintf("--pids-limit=%d", n), fmt.Sprintf("pids_limit: %d", n), "podPidsLimit in the kubelet's configuration")
}

// MoreFiles says how more open files are allowed than now.
func (l Launch) MoreFiles(now uint64) string {
	n := more(now, 1024)
	return fmt.Sprintf(phrases[l].limit, fmt.Sprintf("--ulimit=nofile=%d", n), fmt.Sprintf("ulimits: {nofile: %d}", n), "LimitNOFILE of the container runtime's service")
}

// more is a limit above now, and at least that.
func more(now, least uint64) uint64 {
	const unlimited = 1 << 30 // somebody else's limit was met
	return max(2*min(now, unlimited), least)
}

// flagWithValue is a flag in a sentence. A dot that follows ends the sentence.
var flagWithValue = lazy.Pattern(`--([a-z][a-z-]*) ([a-z0-9]+)`)

// Spell puts the flags that a remedy names into the words of l, if they are settings:
// who has started an image can't give them as flags.
func (l Launch) Spell(remedy string, isSetting func(flag string) bool) string {
	if l == ByHand {
		return remedy
	}
	return flagWithValue().ReplaceAllStringFunc(remedy, func(s string) string {
		m := flagWithValue().FindStringSubmatch(s)
		if !isSetting(m[1]) {
			return s
		}
		return l.Variable(VariableOf(m[1]), m[2])
	})
}
