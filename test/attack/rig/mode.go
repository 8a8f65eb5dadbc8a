package rig

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
	OverXtables place = 1 << iota // AGENT_INIT_TEST_BACKEND=xtables-legacy
	InUp                          // AGENT_INIT_TEST_MODE=up
	InSidecar                     // AGENT_INIT_TEST_MODE=sidecar
	UnderStress                   // AGENT_INIT_STRESS=1
	Soaking                       // AGENT_INIT_SOAK is for how long
	OfCorpus                      // AGENT_EGRESS_BENCH is where the corpus is

	InModes    = InUp | InSidecar
	Everywhere = OverXtables | InModes
)

// places has the tests that run in other places, by name.
var places = map[string]place{}

// Also declares that a test runs in other places, too. It stands beside the test:
//
//	var _ = rig.Also(TestName, everywhere)
//
// The packet filter's rules are other ones over xtables. What differs in up and beside a sidecar is where agent-init's
// processes and files are, and who starts the agent. Parsers, the log and what the guard judges are the same
// everywhere.
func Also(test func(*testing.T), where place) bool {
	name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
	places[name[strings.LastIndex(name, ".")+1:]] |= where
	return true
}

// here is the place that the environment names; 0 is where all tests run.
func here() (where place) {
	switch Backend() {
	case "":
	case "xtables-legacy":
		where |= OverXtables
	default:
		panic("AGENT_INIT_TEST_BACKEND=" + Backend() + " is no backend that tests run over")
	}
	switch mode() {
	case "":
	case "up":
		where |= InUp
	case "sidecar":
		where |= InSidecar
	default:
		panic("AGENT_INIT_TEST_MODE=" + mode() + " is no mode")
	}
	for name, is := range map[string]place{"AGENT_INIT_STRESS": UnderStress, "AGENT_INIT_SOAK": Soaking, "AGENT_EGRESS_BENCH": OfCorpus} {
		if os.Getenv(name) != "" {
			where |= is
		}
	}
	return where
}

// Main runs, of the tests that -run chooses, those that run where the environment says. The others are not skipped:
// they are not there. -list lists them the same way.
func Main(m *testing.M) {
	flag.Parse()
	if where := here(); where != 0 {
		first, _, _ := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
		fmt.Printf("%d tests run here\n", len(chosen(first, where)))
		for _, name := range []string{"test.run", "test.list"} {
			f := flag.Lookup(name).Value
			if name == "test.list" && f.String() == "" {
				continue
			}
			if err := f.Set(narrow(f.String(), where)); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}

// narrow is a pattern of the tests that a pattern chooses in these places. What is behind a slash is about subtests.
func narrow(pattern string, where place) string {
	first, below, slash := strings.Cut(pattern, "/")
	out := "^(" + strings.Join(chosen(first, where), "|") + ")$"
	if slash {
		out += "/" + below
	}
	return out
}

// chosen are the tests that a pattern matches, and that run in all these places.
func chosen(pattern string, where place) (names []string) {
	matches := regexp.MustCompile(pattern)
	for name, declared := range places {
		if declared&where == where && matches.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// mode is how the boxes of the lab are confined: AGENT_INIT_TEST_MODE, "up" or
// "sidecar", or "" for run.
func mode() string { return os.Getenv("AGENT_INIT_TEST_MODE") }

// SidecarEntry is an entry that a sidecar's policy has besides, since it reads no hosts
// file (TestSharedHostsFileUnread).
func SidecarEntry(entry string) string {
	if mode() == "sidecar" {
		return entry
	}
	return ""
}

// startMode starts agent-init in a new box, with nothing but the network
// confined in up and sidecar mode.
func startMode(t *testing.T, l *lab.Lab, list string, opts lab.BoxOptions) *World {
	t.Helper()
	switch mode() {
	case "":
		return StartIn(t, l, list, opts, "agent-init", "run", "--", "sleep", "infinity")
	case "up":
		w := StartIn(t, l, list, opts, "sleep", "infinity")
		w.Mode = mode()
		if r := w.Root("agent-init", "up"); r.Code != 0 {
			t.Fatalf("agent-init up: %s", r)
		}
		return w
	case "sidecar":
		w := StartIn(t, l, list, opts, "agent-init", "sidecar", "--user", fmt.Sprint(lab.AgentUID))
		w.Mode = mode()
		w.Other = l.NewBox(lab.BoxOptions{Share: w.Box, Caps: []string{}, NoNewPrivs: true, Resolv: opts.Resolv, Hosts: opts.Hosts,
			Env: opts.Env, Files: opts.Files, Binds: opts.Binds, NoIPv6: opts.NoIPv6})
		w.Other.Idle()
		return w
	}
	t.Fatalf("AGENT_INIT_TEST_MODE=%s is no mode", mode())
	return nil
}

// Launch starts a program as the agent, which finds no hand of the agent's there.
func (w *World) Launch(args ...string) *lab.Process {
	w.letGo()
	box, cmd := w.inside(args)
	return box.ExecStart(cmd)
}

// inside is where and how a program is started as the agent.
func (w *World) inside(args []string) (*lab.Box, lab.Cmd) {
	switch w.Mode {
	case "up":
		return w.Box, lab.Cmd{Args: args, UID: lab.AgentUID}
	case "sidecar":
		return w.Other, lab.Cmd{Args: args, UID: lab.AgentUID}
	}
	return w.Box, lab.Cmd{Args: append([]string{"agent-init", "exec", "--"}, args...)}
}
