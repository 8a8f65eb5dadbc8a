package process

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestProcess: the log, explain and suggest say which process was refused: who
// asked for a name, made a connection, or sent a request.
func TestProcess(t *testing.T) {
	w := rig.Confine(t, "ok.test\n", lab.BoxOptions{})
	ok4, _ := rig.Named("ok.test")
	for what, tc := range map[string]struct {
		kind string
		args func(name string) []string
	}{
		"a name": {"dns", func(name string) []string { return []string{"resolve", name} }},
		"a name that another server is asked for": {"dns", func(name string) []string { return []string{"dns", "8.8.8.8:53", name, "A"} }},
		"a connection": {"connect", func(name string) []string {
			return []string{"http", "-addr", ok4.String() + ":443", "-insecure", "https://" + name + "/"}
		}},
		"a request": {"http", func(name string) []string {
			return []string{"http", "-addr", ok4.String() + ":80", "http://" + name + "/"}
		}},
	} {
		// On a machine under load the process may be gone before it is found.
		var last rig.Event
		n := 0
		if !rig.Eventually(30*time.Second, func() bool {
			n++
			name := fmt.Sprintf("%s%d-%d.test", tc.kind, len(what), n)
			w.Poke(tc.args(name)...)
			last = w.Audited(what, func(e rig.Event) bool { return e.Kind == tc.kind && e.Name == name })
			return last.Comm == "poke" && last.PID > 1
		}) {
			t.Errorf("%s: nobody is named: %+v", what, last)
			continue
		}
		if last.UID == nil || *last.UID != lab.AgentUID {
			t.Errorf("%s: %+v", what, last)
		}
		by := fmt.Sprintf("poke (%d)", last.PID)
		w.Says([]string{"explain", last.Name}, by)
		w.Says([]string{"log", "--denied"}, by)
		w.Says([]string{"suggest"}, by)
	}
	// Root's shells are seen by their uid alone.
	w.Root("poke", "resolve", "root.test")
	if e := w.Audited("root's question", func(e rig.Event) bool { return e.Name == "root.test" }); e.Comm != "" || e.PID != 0 {
		t.Errorf("root's process was looked at: %+v", e)
	}
}

// TestProcessHostile: what a process calls itself reaches nobody's terminal, and
// the part of the keeper that looks at the agent's processes is not theirs to end.
func TestProcessHostile(t *testing.T) {
	w := rig.Confine(t, "ok.test\n", lab.BoxOptions{})
	keeper := w.Keeper().Pid
	n := 0
	var e rig.Event
	if !rig.Eventually(30*time.Second, func() bool {
		n++
		name := fmt.Sprintf("hostile%d.test", n)
		w.Script(`n=$(printf '/tmp/\033[2J"\n}x'); cp /usr/local/bin/poke "$n" && "$n" resolve "$1"`, name)
		e = w.Audited("the question", func(e rig.Event) bool { return e.Name == name })
		return e.Comm != ""
	}) {
		t.Fatal("nobody is named")
	}
	if e.Comm != "\x1b[2J\"\n}x" {
		t.Errorf("the process is called %q", e.Comm)
	}
	data, err := w.Box.ReadFile(rig.AuditFile)
	rig.Must(t, err)
	rig.WellFormed(t, "log", string(data))
	for _, out := range []string{w.Did("log"), w.Did("suggest"), w.Did("explain", e.Name)} {
		if strings.Contains(out, "\x1b") || strings.Contains(out, "\n}") {
			t.Errorf("a name reaches the terminal: %q", out)
		}
	}
	w.Script(`for t in /proc/1/task/*; do for s in 9 15 19; do kill -$s ${t##*/}; done; done 2>/dev/null`)
	if now := w.Keeper().Pid; now != keeper {
		t.Errorf("the keeper was %d and is %d", keeper, now)
	}
	// An agent with more open files than are looked at, and one that keeps asking,
	// make the log say less, and nothing wait.
	busy := w.AsAgent(w.Box, "dns", "-n", "20000", "-c", "8", "8.8.8.8:53", "{n}.flood.test", "A")
	for range 5 {
		w.Works("http", "https://ok.test/")
	}
	rig.Must(t, busy.Signal(unix.SIGKILL))
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}
