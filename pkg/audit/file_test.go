package audit

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLogFollows: what a person does to the file or its directory costs what was
// in it, and no later event.
func TestLogFollows(t *testing.T) {
	type log struct{ dir, file, aside string }
	for name, c := range map[string]struct {
		do   func(log) error
		kept bool // what was written before is still in the directory
	}{
		"removed":            {func(l log) error { return os.Remove(l.file) }, false},
		"moved away":         {func(l log) error { return os.Rename(l.file, l.aside) }, false},
		"cut":                {func(l log) error { return os.Truncate(l.file, 0) }, false},
		"cut short":          {func(l log) error { return os.Truncate(l.file, 10) }, false},
		"replaced":           {func(l log) error { return replace(l.file) }, false},
		"added to":           {func(l log) error { return add(l.file) }, true},
		"directory removed":  {func(l log) error { return os.RemoveAll(l.dir) }, false},
		"directory moved":    {func(l log) error { return os.Rename(l.dir, l.aside) }, false},
		"directory replaced": {func(l log) error { return replaceDir(l.dir, l.aside) }, false},
		"nothing":            {func(log) error { return nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			where := log{dir: filepath.Join(root, "log"), aside: filepath.Join(root, "aside")}
			where.file = filepath.Join(where.dir, FileName)
			l := openTest(t, Options{Dir: where.dir, MaxSize: 1 << 20})
			l.Write(Event{Kind: Policy, Verdict: Info, Reason: "before"})
			if err := c.do(where); err != nil {
				t.Fatal(err)
			}
			l.Write(Event{Kind: Policy, Verdict: Info, Reason: "after"})
			l.Write(Event{Kind: Policy, Verdict: Info, Reason: "after that"})
			if err := l.Err(); err != nil {
				t.Errorf("events are lost: %v", err)
			}
			events := read(t, where.dir)
			want := []string{"before", "after", "after that"}
			if name != "nothing" {
				want = []string{"before", "after", Tampered, "after that"}
			}
			if !c.kept {
				want = want[1:]
			}
			for i, e := range events {
				if !c.kept {
					i++
				}
				if e.Seq != uint64(1+i) {
					t.Errorf("got %+v", e)
				}
			}
			if !slices.EqualFunc(events, want, func(e Event, reason string) bool { return strings.HasPrefix(e.Reason, reason) }) {
				t.Errorf("got %+v, want %q", events, want)
			}
			if st, err := os.Stat(where.file); err != nil || st.Size() != l.size {
				t.Errorf("%d bytes (%v), counted as %d", st.Size(), err, l.size)
			}
		})
	}
}

func replace(file string) error {
	if err := os.WriteFile(file+".new", []byte("# mine\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func add(file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("# a note without an end")
	f.Close()
	return err
}

func replaceDir(dir, aside string) error {
	if err := os.Rename(dir, aside); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o755)
}

// TestLogDistrusts: what stands in the file's place must be what a log may be
// written to. Until it is, events are lost, and counted.
func TestLogDistrusts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	file := filepath.Join(dir, FileName)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	l := openTest(t, Options{Dir: dir})
	l.Write(Event{Kind: Policy, Verdict: Info})
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, file); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		l.Write(Event{Kind: Policy, Verdict: Info})
	}
	l.Retry()
	if _, err := os.Stat(elsewhere); err == nil {
		t.Error("written through a link")
	}
	if l.Err() == nil {
		t.Fatal("no word of lost events")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	l.Retry() // nothing happens that would be recorded
	if err := l.Err(); err != nil {
		t.Errorf("still lost: %v", err)
	}
	events := read(t, dir)
	if len(events) != 2 || events[0].Suppressed != 3 || events[0].Kind != Guard || !strings.HasPrefix(events[1].Reason, Tampered) {
		t.Errorf("got %+v", events)
	}
	l.Retry()
	l.Write(Event{Kind: Policy, Verdict: Info})
	if events = read(t, dir); len(events) != 3 || events[2].Seq <= events[1].Seq {
		t.Errorf("got %+v", events)
	}
}

// TestLogInUse: nobody writes into a log that another process writes, also once its directory was replaced. The agent
// can't hold the lock: it may not open the file.
func TestLogInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l := openTest(t, Options{Dir: dir})
	l.Write(Event{Kind: Guard, Verdict: Info, Reason: "first"})
	if _, err := Open(Options{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	if st, err := os.Stat(filepath.Join(dir, LockName)); err != nil || st.Mode() != 0o600 {
		t.Errorf("the lock: %v, %v", st.Mode(), err)
	}

	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	other := openTest(t, Options{Dir: dir})
	if l.Write(Event{Kind: Guard, Verdict: Info, Reason: "second"}); !errors.Is(l.Err(), ErrInUse) {
		t.Errorf("wrote into another's log: %v", l.Err())
	}
	other.Close()
	if l.Retry(); l.Err() != nil {
		t.Errorf("the other has ended: %v", l.Err())
	}
	if _, err := Open(Options{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice, behind a new directory: %v", err)
	}
	l.Close()
	openTest(t, Options{Dir: dir})
}

// TestLogFound counts what was found, and no line that was written.
func TestLogFound(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, Options{Dir: dir})
	for range 3 {
		l.Write(Event{Kind: Guard, Verdict: Info})
	}
	if n := l.Found(); n != 0 {
		t.Errorf("%d findings in a log that nobody touched", n)
	}
	if err := os.Truncate(filepath.Join(dir, FileName), 10); err != nil {
		t.Fatal(err)
	}
	l.Write(Event{Kind: Guard, Verdict: Info})
	if n := l.Found(); n != 1 {
		t.Errorf("%d findings in a log that was cut", n)
	}
}
