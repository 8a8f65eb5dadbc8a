package attack

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// A place is where tests run besides over nftables with agent-init as PID 1, which is where each of them runs.
type place int

const (
	overXtables place = 1 << iota // AGENT_INIT_TEST_BACKEND=xtables-legacy
	inUp                          // AGENT_INIT_TEST_MODE=up
	inSidecar                     // AGENT_INIT_TEST_MODE=sidecar
	underStress                   // AGENT_INIT_STRESS=1

	inModes    = inUp | inSidecar
	everywhere = overXtables | inModes
)

// places has the tests that run in other places, by name.
var places = map[string]place{}

// also declares that a test runs in other places, too. It stands beside the test:
//
//	var _ = also(TestName, everywhere)
//
// The packet filter's rules are other ones over xtables. What differs in up and beside a sidecar is where agent-init's
// processes and files are, and who starts the agent. Parsers, the log and what the guard judges are the same
// everywhere.
func also(test func(*testing.T), where place) bool {
	name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
	places[name[strings.LastIndex(name, ".")+1:]] |= where
	return true
}

// here is the place that the environment names; 0 is where all tests run.
func here() (where place) {
	switch backend() {
	case "":
	case "xtables-legacy":
		where |= overXtables
	default:
		panic("AGENT_INIT_TEST_BACKEND=" + backend() + " is no backend that tests run over")
	}
	switch mode() {
	case "":
	case "up":
		where |= inUp
	case "sidecar":
		where |= inSidecar
	default:
		panic("AGENT_INIT_TEST_MODE=" + mode() + " is no mode")
	}
	if stress() {
		where |= underStress
	}
	return where
}

// TestMain runs, of the tests that -run chooses, those that run where the environment says. The others are not skipped:
// they are not there. -list lists them the same way.
func TestMain(m *testing.M) {
	flag.Parse()
	if where := here(); where != 0 {
		for _, name := range []string{"test.run", "test.list"} {
			f := flag.Lookup(name)
			if pattern := f.Value.String(); pattern != "" || name == "test.run" {
				if err := f.Value.Set(narrow(pattern, where)); err != nil {
					panic(err)
				}
			}
		}
	}
	os.Exit(m.Run())
}

// narrow is a pattern of tests that a pattern matches, and that run in all these places. What is behind a slash is
// about subtests.
func narrow(pattern string, where place) string {
	first, below, slash := strings.Cut(pattern, "/")
	matches := regexp.MustCompile(first)
	var names []string
	for name, declared := range places {
		if declared&where == where && matches.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	out := "^(" + strings.Join(names, "|") + ")$"
	if slash {
		out += "/" + below
	}
	return out
}

// mode is how the boxes of the lab are confined: AGENT_INIT_TEST_MODE, "up" or
// "sidecar", or "" for run.
func mode() string { return os.Getenv("AGENT_INIT_TEST_MODE") }

// sidecarEntry is an entry that a sidecar's policy has besides, since it reads no hosts
// file (TestSharedHostsFileUnread).
func sidecarEntry(entry string) string {
	if mode() == "sidecar" {
		return entry
	}
	return ""
}

// startMode starts agent-init in a new box, with nothing but the network
// confined in up and sidecar mode.
func startMode(t *testing.T, l *lab.Lab, list string, opts lab.BoxOptions) *world {
	t.Helper()
	switch mode() {
	case "":
		return startIn(t, l, list, opts, "agent-init", "run", "--", "sleep", "infinity")
	case "up":
		w := startIn(t, l, list, opts, "sleep", "infinity")
		w.mode = mode()
		if r := w.root("agent-init", "up"); r.Code != 0 {
			t.Fatalf("agent-init up: %s", r)
		}
		return w
	case "sidecar":
		w := startIn(t, l, list, opts, "agent-init", "sidecar", "--user", fmt.Sprint(lab.AgentUID))
		w.mode = mode()
		w.other = l.NewBox(lab.BoxOptions{Share: w.box, Caps: []string{}, NoNewPrivs: true, Resolv: opts.Resolv, Hosts: opts.Hosts,
			Env: opts.Env, Files: opts.Files, Binds: opts.Binds, NoIPv6: opts.NoIPv6})
		w.other.Idle()
		return w
	}
	t.Fatalf("AGENT_INIT_TEST_MODE=%s is no mode", mode())
	return nil
}

// launch starts a program as the agent, which finds no hand of the agent's there.
func (w *world) launch(args ...string) *lab.Process {
	w.letGo()
	box, cmd := w.inside(args)
	return box.ExecStart(cmd)
}

// inside is where and how a program is started as the agent.
func (w *world) inside(args []string) (*lab.Box, lab.Cmd) {
	switch w.mode {
	case "up":
		return w.box, lab.Cmd{Args: args, UID: lab.AgentUID}
	case "sidecar":
		return w.other, lab.Cmd{Args: args, UID: lab.AgentUID}
	}
	return w.box, lab.Cmd{Args: append([]string{"agent-init", "exec", "--"}, args...)}
}
