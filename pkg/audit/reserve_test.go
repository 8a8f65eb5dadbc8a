package audit

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// TestLogReserve: the file has blocks for the lines to come, also after it was
// rotated, cut or replaced, and its size says nothing of them.
func TestLogReserve(t *testing.T) {
	dir := t.TempDir()
	const limit = 64 << 10
	l := openTest(t, Options{Dir: dir, MaxSize: limit, Files: 2})
	l.Write(Event{Kind: DNS, Verdict: Deny, Name: "a.example"})
	if l.held < 0 {
		mustrun.Lacks(t, "the file system of the test holds no room back")
	}
	check := func(when string) {
		t.Helper()
		var st syscall.Stat_t
		if err := syscall.Stat(dir+"/"+FileName, &st); err != nil {
			t.Fatal(err)
		}
		if st.Size != l.size {
			t.Errorf("%s: %d bytes, counted as %d", when, st.Size, l.size)
		}
		if want := min(st.Size+limit/8, limit) - 4096; st.Blocks*512 < want {
			t.Errorf("%s: blocks for %d bytes, want %d", when, st.Blocks*512, want)
		}
		if st.Blocks*512 > limit+4096 {
			t.Errorf("%s: blocks for %d bytes, more than a file may have", when, st.Blocks*512)
		}
	}
	check("at the start")
	for i := range 1000 {
		l.Write(Event{Kind: DNS, Verdict: Deny, Name: fmt.Sprintf("n%d.example", i)})
		check(fmt.Sprintf("after line %d", i))
		if t.Failed() {
			return
		}
	}
	for name, do := range map[string]func(string) error{
		"cut": func(f string) error { return os.Truncate(f, 0) }, "removed": os.Remove,
	} {
		if err := do(dir + "/" + FileName); err != nil {
			t.Fatal(err)
		}
		l.Write(Event{Kind: DNS, Verdict: Deny, Name: "b.example"})
		check(name)
	}
	if l.Err() != nil {
		t.Error(l.Err())
	}
}

// TestLogChanged: who publishes the state hears of a loss when it happens, and of its end.
func TestLogChanged(t *testing.T) {
	l := openTest(t, Options{Dir: t.TempDir()})
	told := func() bool {
		select {
		case <-l.Changed():
			return true
		default:
			return false
		}
	}
	l.Write(Event{Kind: DNS, Verdict: Deny})
	if told() {
		t.Error("a word of nothing")
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	file := l.file
	l.file = full
	for range 3 {
		l.Write(Event{Kind: DNS, Verdict: Deny})
	}
	if !told() || told() {
		t.Error("not one word of a loss")
	}
	l.file = file
	l.Retry()
	if !told() || l.Err() != nil {
		t.Errorf("no word of its end: %v", l.Err())
	}
}
