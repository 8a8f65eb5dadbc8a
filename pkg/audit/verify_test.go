package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// logOf writes a log of n lines, in three files, and returns its directory.
func logOf(t testing.TB, dir string, n int) (Head, Options) {
	t.Helper()
	o := Options{Dir: dir, MaxSize: 4200, Files: 3}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range n {
		l.Write(Event{Kind: DNS, Verdict: Deny, Name: fmt.Sprintf("n%d.example", i+1), Reason: "not in the allowlist"})
	}
	return l.Head(), o
}

func verified(t testing.TB, dir string, known ...Head) Verification {
	t.Helper()
	v, err := Verify(filepath.Join(dir, FileName), true, known...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// findings are what was found, in short.
func (v Verification) findings() (out []string) {
	for _, f := range v.Findings {
		out = append(out, fmt.Sprintf("%s %d-%d", f.Kind, f.From, f.To))
	}
	return out
}

// TestVerifyWhole: a log is whole through rotations and restarts, and so is one that an older version began, one that
// lost events and said so, and one that is being written.
func TestVerifyWhole(t *testing.T) {
	t.Run("restarts", func(t *testing.T) {
		dir := t.TempDir()
		for i := range 7 {
			head, _ := logOf(t, dir, 9)
			v := verified(t, dir, head)
			if !v.Whole || v.Head != head || head.Seq != uint64(9*(i+1)) {
				t.Fatalf("after %d runs: %+v", i+1, v)
			}
		}
		if v := verified(t, dir); v.First < 2 || v.Lines != v.Head.Seq-v.First+1 {
			t.Errorf("nothing was rotated away: %+v", v)
		}
	})
	t.Run("older version", func(t *testing.T) {
		dir := t.TempDir()
		old := `{"seq":41,"event":"dns","verdict":"deny"}` + "\n" + `{"seq":42,"event":"dns","verdict":"deny"}` + "\n"
		if err := os.WriteFile(filepath.Join(dir, FileName), []byte(old), 0o644); err != nil {
			t.Fatal(err)
		}
		logOf(t, dir, 3)
		if v := verified(t, dir); !v.Whole || v.Unhashed != 2 || v.First != 41 || v.Head.Seq != 45 {
			t.Errorf("%+v", v)
		}
	})
	t.Run("lost", func(t *testing.T) {
		dir := t.TempDir()
		l := openTest(t, Options{Dir: dir})
		l.Write(Event{Kind: Policy, Verdict: Info})
		full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		file := l.file
		l.file = full
		for range 3 {
			l.Write(Event{Kind: DNS, Verdict: Deny})
		}
		full.Close()
		l.file = file
		l.Write(Event{Kind: DNS, Verdict: Allow})
		if v := verified(t, dir); !v.Whole || v.Lost != 3 || v.Head.Seq != 6 {
			t.Errorf("%+v", v)
		}
	})
	t.Run("while it is written", func(t *testing.T) {
		dir := t.TempDir()
		l := openTest(t, Options{Dir: dir, MaxSize: 8 << 10, Files: 3})
		l.Write(Event{Kind: DNS, Verdict: Deny})
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
					l.Write(Event{Kind: DNS, Verdict: Deny, Name: "busy.example"})
				}
			}
		}()
		defer func() { close(stop); <-done }()
		for l.Head().Seq < 200 {
			l.Write(Event{Kind: DNS, Verdict: Deny})
		}
		for range 20 {
			if v := verified(t, dir); !v.Whole {
				t.Fatalf("%+v", v)
			}
		}
	})
}

// edit changes the lines of all files as one.
func edit(t *testing.T, dir string, do func([]string) []string) {
	t.Helper()
	for i := 2; i >= 0; i-- {
		path := filepath.Join(dir, numbered(FileName, i))
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := do(strings.SplitAfter(strings.TrimSuffix(string(raw), "\n"), "\n"))
		if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// numberOf is the number of a line.
func numberOf(line string) uint64 {
	l, _ := linkOf([]byte(line))
	return l.Seq
}

// on changes the lines of one file, from the one of that number on.
func on(seq uint64, do func(before, from []string) []string) func([]string) []string {
	return func(lines []string) []string {
		if n := len(lines) - 1; !strings.HasSuffix(lines[n], "\n") {
			lines[n] += "\n"
		}
		i := slices.IndexFunc(lines, func(l string) bool { return numberOf(l) == seq })
		if i < 0 {
			return lines
		}
		return do(slices.Clone(lines[:i]), lines[i:])
	}
}

// forged is a line that follows another.
func forged(seq uint64, before string) string {
	return string(Encode(Event{Seq: seq, Kind: DNS, Verdict: Allow, Name: "forged.example", Prev: hashOf([]byte(strings.TrimSuffix(before, "\n")))})) + "\n"
}

// tampered are what somebody may do to a log of 45 lines, and what is found. Line 27 is in the middle of a file.
var tampered = map[string]struct {
	do   func(t *testing.T, dir string)
	want []string
}{
	"a word altered": {from(27, func(b, l []string) []string {
		l[0] = strings.Replace(l[0], "deny", "allow", 1)
		return append(b, l...)
	}), []string{"altered 27-27"}},
	"a space added": {from(27, func(b, l []string) []string { l[0] = " " + l[0]; return append(b, l...) }), []string{"altered 27-27"}},
	"the number altered": {from(27, func(b, l []string) []string {
		l[0] = strings.Replace(l[0], `"seq":27`, `"seq":70`, 1)
		return append(b, l...)
	}), []string{"altered 70-70", "altered 27-27"}},
	"made unreadable": {from(27, func(b, l []string) []string { l[0] = "{\n"; return append(b, l...) }), []string{"added 0-0", "missing 27-27"}},
	"its hash taken": {from(27, func(b, l []string) []string {
		l[0] = l[0][:strings.Index(l[0], `,"prev"`)] + "}\n"
		return append(b, l...)
	}), []string{"added 0-0", "missing 27-27"}},
	"one removed":             {from(27, func(b, l []string) []string { return append(b, l[1:]...) }), []string{"missing 27-27"}},
	"three removed":           {from(27, func(b, l []string) []string { return append(b, l[3:]...) }), []string{"missing 27-29"}},
	"two swapped":             {from(27, func(b, l []string) []string { l[0], l[1] = l[1], l[0]; return append(b, l...) }), []string{"reordered 27-27"}},
	"one moved":               {from(27, func(b, l []string) []string { return append(append(b, l[1:4]...), append([]string{l[0]}, l[4:]...)...) }), []string{"reordered 27-27"}},
	"one twice":               {from(27, func(b, l []string) []string { return append(append(b, l[0]), l...) }), []string{"added 27-27"}},
	"one twice later":         {from(27, func(b, l []string) []string { return append(append(b, l[:3]...), append([]string{l[0]}, l[3:]...)...) }), []string{"added 27-27"}},
	"one forged":              {from(27, func(b, l []string) []string { return append(append(b, forged(27, b[len(b)-1])), l...) }), []string{"added 27-27"}},
	"one replaced":            {from(27, func(b, l []string) []string { l[0] = forged(27, b[len(b)-1]); return append(b, l...) }), []string{"altered 27-27"}},
	"a note":                  {from(27, func(b, l []string) []string { return append(append(b, "# mine\n"), l...) }), []string{"added 0-0"}},
	"a blank line":            {from(27, func(b, l []string) []string { return append(append(b, "\n"), l...) }), []string{"added 0-0"}},
	"a long line":             {from(27, func(b, l []string) []string { return append(append(b, strings.Repeat("x", 1<<20)+"\n"), l...) }), []string{"added 0-0"}},
	"the end cut":             {from(45, func(b, l []string) []string { return b }), []string{"missing 45-45"}},
	"the end cut off":         {from(45, func(b, l []string) []string { return append(b, l[0][:40]) }), []string{"added 0-0", "added 0-0", "missing 45-45"}},
	"the newline cut":         {from(45, func(b, l []string) []string { return append(b, l[0][:len(l[0])-1]) }), []string{"added 0-0"}},
	"the end altered":         {from(45, func(b, l []string) []string { l[0] = strings.Replace(l[0], "n45", "n54", 1); return append(b, l...) }), []string{"altered 45-45"}},
	"the end added to":        {from(45, func(b, l []string) []string { return append(append(b, l...), forged(46, l[0])) }), []string{"added 46-46"}},
	"the oldest file removed": {func(t *testing.T, dir string) { remove(t, dir, FileName+".2") }, []string{"missing FIRST-MIDDLE"}},
	"the middle file removed": {func(t *testing.T, dir string) { remove(t, dir, FileName+".1") }, []string{"missing FIRST-LAST"}},
	"two files swapped": {func(t *testing.T, dir string) {
		one, two := filepath.Join(dir, FileName+".1"), filepath.Join(dir, FileName+".2")
		if err := errors.Join(os.Rename(one, one+"x"), os.Rename(two, one), os.Rename(one+"x", two)); err != nil {
			t.Fatal(err)
		}
	}, []string{"reordered FIRST-MIDDLE"}},
	"the note removed": {func(t *testing.T, dir string) { remove(t, dir, HeadName) }, []string{"missing 0-0"}},
}

func from(seq uint64, do func(before, from []string) []string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { edit(t, dir, on(seq, do)) }
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// TestVerifyTampered: whatever is done to a log, it is found and named.
func TestVerifyTampered(t *testing.T) {
	for name, c := range tampered {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			head, _ := logOf(t, dir, 45)
			firsts := map[string]uint64{}
			for i := range 3 {
				raw, err := os.ReadFile(filepath.Join(dir, numbered(FileName, i)))
				if err != nil {
					t.Fatal(err)
				}
				line, _, _ := bytes.Cut(raw, []byte{'\n'})
				firsts[numbered("", i)] = numberOf(string(line))
			}
			c.do(t, dir)
			v := verified(t, dir)
			var want []string
			for _, w := range c.want {
				first, last := firsts[".2"], firsts[".1"]-1
				if name == "the middle file removed" {
					first = firsts[".1"]
				}
				w = strings.NewReplacer("FIRST", fmt.Sprint(first), "MIDDLE", fmt.Sprint(last), "LAST", fmt.Sprint(firsts[""]-1)).Replace(w)
				want = append(want, w)
			}
			if got := v.findings(); !slices.Equal(got, want) || v.Whole {
				t.Errorf("found %q, want %q", got, want)
			}
			// The head that somebody has kept elsewhere says so without the note.
			v, err := Verify(filepath.Join(dir, FileName), false, Head{head.Seq, head.Hash[:MinHash]})
			if quiet := []string{"the note removed", "the oldest file removed", "the end added to"}; err != nil || v.Whole != slices.Contains(quiet, name) {
				t.Errorf("by the head alone: %q, %v", v.findings(), err)
			}
		})
	}
}

// TestVerifyResumed: what was done to a log while nobody wrote it is said by its next line, and is no less found after that.
func TestVerifyResumed(t *testing.T) {
	for name, c := range tampered {
		ofEnd := strings.HasPrefix(name, "the end") || strings.HasPrefix(name, "the newline") || strings.HasPrefix(name, "the note")
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			logOf(t, dir, 45)
			c.do(t, dir)
			before := verified(t, dir)
			l := openTest(t, Options{Dir: dir})
			l.Write(Event{Kind: Policy, Verdict: Info})
			v := verified(t, dir)
			if v.Whole {
				t.Errorf("bridged: %q, and before %q", v.findings(), before.findings())
			}
			noticed := slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Kind == Noticed })
			if noticed != ofEnd {
				t.Errorf("noticed: %v: %q", noticed, v.findings())
			}
			if last := v.Head.Seq; last < 46 {
				t.Errorf("goes on at %d", last)
			}
		})
	}
}

// TestVerifyForgets: what is older than the log is not judged; a head that is another's is.
func TestVerifyForgets(t *testing.T) {
	dir := t.TempDir()
	early, _ := logOf(t, dir, 5)
	logOf(t, dir, 200)
	if v := verified(t, dir, early); !v.Whole || !slices.Equal(v.Unjudged, []Head{early}) {
		t.Errorf("%+v", v)
	}
	if v := verified(t, dir, Head{200, strings.Repeat("ab", 32)}); !slices.Equal(v.findings(), []string{"altered 200-200"}) {
		t.Errorf("%+v", v)
	}
}

// TestVerifyBounded: a log made to be found fault with has a list that ends.
func TestVerifyBounded(t *testing.T) {
	dir := t.TempDir()
	var b bytes.Buffer
	for i := range 3 * maxFindings {
		fmt.Fprintf(&b, "{\"seq\":%d,\"prev\":\"x\"}\n{\n{\"seq\":%d,\"prev\":\"x\"}\n", 1_000_000+i*1000, 1_000_000+i*1000-7)
	}
	if err := os.WriteFile(filepath.Join(dir, FileName), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	v := verified(t, dir)
	if len(v.Findings) > maxFindings+1 || v.More < maxFindings {
		t.Errorf("%d findings, %d more", len(v.Findings), v.More)
	}
}

// FuzzVerify changes some bytes of a log: it is whole only if nothing has changed.
func FuzzVerify(f *testing.F) {
	dir := f.TempDir()
	head, _ := logOf(f, dir, 10)
	path := filepath.Join(dir, FileName)
	genuine, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	second := bytes.IndexByte(genuine, '\n') + 1
	f.Add(uint16(20), uint16(1), []byte("9"))
	f.Add(uint16(second), uint16(0), []byte("{\"seq\":2,\"prev\":\"\"}\n"))
	f.Add(uint16(0), uint16(second), []byte{})
	f.Add(uint16(len(genuine)-1), uint16(1), []byte{})
	f.Add(uint16(len(genuine)), uint16(0), []byte("\n"))
	f.Fuzz(func(t *testing.T, at, cut uint16, put []byte) {
		from := min(int(at), len(genuine))
		to := min(from+int(cut), len(genuine))
		now := slices.Concat(genuine[:from], put, genuine[to:])
		if err := os.WriteFile(path, now, 0o644); err != nil {
			t.Fatal(err)
		}
		v, err := Verify(path, true)
		if err != nil {
			t.Fatal(err)
		}
		if same := bytes.Equal(now, genuine); v.Whole != same || same && v.Head != head {
			t.Errorf("changed: %v, and found %q in\n%s", !same, v.findings(), now)
		}
		if _, err := json.Marshal(v); err != nil || len(v.Findings) > maxFindings+1 {
			t.Errorf("%d findings, %v", len(v.Findings), err)
		}
	})
}
