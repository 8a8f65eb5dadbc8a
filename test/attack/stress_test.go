package attack

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// stress is for make stress: the same tests, for as long as it takes to believe
// them.
func stress() bool { return os.Getenv("AGENT_INIT_STRESS") == "1" }

// often is how often a test does something: usually, and under stress.
func often[T any](usually, stressed T) T {
	if stress() {
		return stressed
	}
	return usually
}

// large is the length of a stream that goes on for longer than anything is held.
func large() int64 { return often[int64](128<<20, 1<<30) }

// footprint is what the keeper, or the guard, takes of the machine.
type footprint struct {
	what  string
	kib   int // resident
	files int // descriptors
}

func (f footprint) String() string {
	return fmt.Sprintf("%s %.1f MiB, %d descriptors", f.what, float64(f.kib)/1024, f.files)
}

// footprints are those of keeper and guard.
func (w *world) footprints() [2]footprint {
	w.Helper()
	return [2]footprint{w.footprint("keeper", w.agent.Pid()), w.footprint("guard", w.guard().host)}
}

func (w *world) footprint(what string, host int) footprint {
	w.Helper()
	f := footprint{what: what}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", host))
	must(w.T, err)
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "RssAnon:" {
			f.kib, err = strconv.Atoi(fields[1])
			must(w.T, err)
		}
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", host))
	must(w.T, err)
	f.files = len(files)
	return f
}

// flat fails the test if keeper or guard have grown by more than so much since
// before, and do not shrink again.
func (w *world) flat(before [2]footprint, kib, files int) {
	w.Helper()
	var now [2]footprint
	if !eventually(30*time.Second, func() bool {
		now = w.footprints()
		return !slices.ContainsFunc([]int{0, 1}, func(i int) bool {
			return now[i].kib > before[i].kib+kib || now[i].files > before[i].files+files
		})
	}) {
		w.Errorf("has grown from %v to %v", before, now)
	}
	w.Logf("from %v to %v", before, now)
}

// recovers waits for health, without help, and that what is allowed works.
func (w *world) recovers(after string) {
	w.Helper()
	if !eventually(60*time.Second, func() bool { _, code := w.status(); return code == 0 }) {
		s, _ := w.status()
		w.Fatalf("not healthy after %s: %v\n%s", after, s["why"], w.agent.Stderr())
	}
	var last string
	if !eventually(20*time.Second, func() bool {
		p := w.poke("http", "https://ok.test/")
		last = p.String()
		return p.OK
	}) {
		w.Errorf("what is allowed does not work after %s: %s", after, last)
	}
}

// closed fails the test if anything can be reached, or was, that the policy does
// not name.
func (w *world) closed(allowed ...string) {
	w.Helper()
	w.blocked("tcp", "-timeout", "1s", "1.1.1.1:443")
	w.blocked("udp", "-timeout", "300ms", "1.1.1.1:443")
	w.upstreamOnlyOr(append(allowed, "ok.test")...)
	w.unasked("evil.test")
}

// quietly runs a test's load: what it says is of no interest.
func quietly(t *testing.T, w *world, script string) (stop func()) {
	t.Helper()
	p := w.root("sh", "-c", "umask 0; : >/tmp/load")
	if p.Code != 0 {
		t.Fatal(p)
	}
	load := w.box.ExecStart(labCmd("agent-init", "exec", "--", "sh", "-c", "while [ -e /tmp/load ]; do "+script+"; done >/dev/null 2>&1"))
	return func() {
		w.root("rm", "-f", "/tmp/load")
		load.Wait(time.Minute)
	}
}
