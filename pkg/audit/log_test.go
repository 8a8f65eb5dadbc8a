package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func openTest(t *testing.T, o Options) *Log {
	t.Helper()
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// read returns the events of all files of dir, oldest first.
func read(t *testing.T, dir string) []Event {
	t.Helper()
	var events []Event
	for i := 20; i >= 0; i-- {
		raw, err := os.ReadFile(filepath.Join(dir, numbered(FileName, i)))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		sc := bufio.NewScanner(bytes.NewReader(raw))
		for sc.Scan() {
			if e, err := Decode(sc.Bytes()); err == nil {
				events = append(events, e)
			}
		}
	}
	return events
}

func TestLogWrites(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	dir := filepath.Join(t.TempDir(), "var", "log")
	l := openTest(t, Options{Dir: dir})
	l.now = func() time.Time { return time.Date(2026, 1, 2, 4, 4, 5, 123456789, time.FixedZone("", 3600)) }
	l.Write(Event{Seq: 77, Time: time.Unix(1, 0), Kind: Policy, Verdict: Info})
	l.Write(Untrusted(TheGuard, Pack(Event{Seq: 78, Kind: DNS, Verdict: Deny, Name: "evil.example"})))
	l.Write(Untrusted(TheGuard, Pack(Event{Kind: Policy, Verdict: Allow})))
	raw, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"seq":1,"time":"2026-01-02T03:04:05.123456789Z","event":"policy","verdict":"info","prev":"0000000000000000000000000000000000000000000000000000000000000000"}
{"seq":2,"time":"2026-01-02T03:04:05.123456789Z","event":"dns","verdict":"deny","name":"evil.example","prev":"8531a6e00c49408904da44cd045cf6c96c2d9eb6750855cb80f17f1d30b777d1"}
{"seq":3,"time":"2026-01-02T03:04:05.123456789Z","event":"guard","verdict":"fault","reason":"the guard sent an event that was refused: kind 255, verdict 0, enforce 0, asker 0, uid 0: not to be said","prev":"775a86a327b8ae796e6b326f0156982363802484a9295bc5369fcad53e415de5"}
`
	if string(raw) != want {
		t.Errorf("got:\n%swant:\n%s", raw, want)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o755, filepath.Join(dir, FileName): 0o644} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
}

func TestLogContinues(t *testing.T) {
	tests := map[string]struct {
		files map[string]string // before Open
		seq   uint64            // of the first event that is written to it, behind what is said of its end
	}{
		"new":              {nil, 1},
		"whole":            {map[string]string{"": `{"seq":41}` + "\n"}, 42},
		"torn":             {map[string]string{"": `{"seq":41}` + "\n" + `{"seq":42,"ti`}, 43},
		"torn only":        {map[string]string{"": `{"seq":42,"ti`}, 2},
		"no newline":       {map[string]string{"": `{"seq":41}`}, 43},
		"blank lines":      {map[string]string{"": `{"seq":41}` + "\n\n\n"}, 43},
		"newer schema":     {map[string]string{"": `{"seq":41,"colour":"red"}` + "\n"}, 42},
		"just rotated":     {map[string]string{"": "", ".1": `{"seq":99}` + "\n"}, 100},
		"torn and rotated": {map[string]string{"": "{", ".1": `{"seq":99}` + "\n"}, 101},
		"garbage":          {map[string]string{"": strings.Repeat("\x00", 200_000)}, 2},
		"long torn line":   {map[string]string{"": `{"seq":7}` + "\n" + strings.Repeat("x", tailSize-100)}, 9},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for suffix, text := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, FileName+suffix), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			l := openTest(t, Options{Dir: dir})
			l.Write(Event{Kind: Policy, Verdict: Info})
			l.Write(Event{Kind: Policy, Verdict: Info})
			raw, _ := os.ReadFile(filepath.Join(dir, FileName))
			kept := strings.TrimSuffix(tt.files[""], "\n")
			if !strings.HasPrefix(string(raw), kept) {
				t.Error("what was in the file is gone")
			}
			got := strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
			for i := range 2 {
				e, err := Decode([]byte(got[len(got)-2+i]))
				if err != nil || e.Seq != tt.seq+uint64(i) {
					t.Errorf("line %d: seq %d, want %d, %v", i, e.Seq, tt.seq+uint64(i), err)
				}
			}
		})
	}
}

func TestLogRotates(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: dir, MaxSize: 8 << 10, Files: 3}
	l := openTest(t, o)
	const n = 1000
	for i := range n {
		l.Write(Event{Kind: DNS, Verdict: Deny, Name: fmt.Sprint(i)})
		if i == n/2 { // a restart in the middle
			l.Close()
			l = openTest(t, o)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 5 || entries[0].Name() != HeadName || entries[4].Name() != LockName {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	for _, e := range entries[1:4] {
		if st, err := e.Info(); err != nil || st.Size() > o.MaxSize || st.Size() < o.MaxSize/2 {
			t.Errorf("%s: %d bytes, %v", e.Name(), st.Size(), err)
		}
	}
	events := read(t, dir)
	if last := events[len(events)-1]; last.Seq != n || last.Name != fmt.Sprint(n-1) {
		t.Errorf("last: %+v", last)
	}
	for i, e := range events[1:] {
		if e.Seq != events[i].Seq+1 {
			t.Fatalf("%d follows %d", e.Seq, events[i].Seq)
		}
	}
}

// As many files are kept as are asked for, one included, and those of a larger
// number before go.
func TestLogKeepsFiles(t *testing.T) {
	dir := t.TempDir()
	for _, files := range []int{4, 1, 2} {
		l := openTest(t, Options{Dir: dir, MaxSize: 8 << 10, Files: files})
		for i := range 1000 {
			l.Write(Event{Kind: DNS, Verdict: Deny, Name: fmt.Sprint(i)})
		}
		l.Close()
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 2+files {
			t.Errorf("%d files, want %d, %s and %s, %v", len(entries), files, HeadName, LockName, err)
		}
	}
	if events := read(t, dir); events[len(events)-1].Seq != 3000 {
		t.Errorf("last: %+v", events[len(events)-1])
	}
}

// E75: a million refusals, through the limiter as the keeper has it, stay in
// the space of the ring, and the newest events say how many there were.
func TestE75DiskBounded(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, Options{Dir: dir, MaxSize: 64 << 10, Files: 3})
	lim := NewLimiter(l.Write)
	for i := range 100_000 {
		lim.Record(Event{Kind: DNS, Verdict: Deny, Name: fmt.Sprintf("%d.evil.example", i)})
	}
	lim.Flush()
	entries, _ := os.ReadDir(dir)
	var size int64
	for _, e := range entries {
		st, _ := e.Info()
		size += st.Size()
	}
	if size > 3*64<<10+noteSize {
		t.Errorf("%d bytes on disk", size)
	}
	var most uint64
	for _, e := range read(t, dir) {
		most = max(most, e.Suppressed)
	}
	if most < 90_000 {
		t.Errorf("largest summary: %d", most)
	}
}

func TestLogConcurrent(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, Options{Dir: dir, MaxSize: 16 << 10, Files: 16})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				l.Write(Event{Kind: DNS, Verdict: Deny, Name: "evil.example"})
			}
		})
	}
	wg.Wait()
	if got := read(t, dir); len(got) != 800 || got[799].Seq != 800 {
		t.Errorf("%d events", len(got))
	}
}

// What can't be written is counted, shows as a gap in seq, and is reported.
func TestLogLost(t *testing.T) {
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
	if err := l.Err(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("Err: %v", err)
	}
	full.Close()
	l.file = file
	l.Write(Event{Kind: DNS, Verdict: Allow})
	if l.Err() != nil {
		t.Error(l.Err())
	}
	got := read(t, dir)
	if len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	if r := got[1]; r.Kind != Guard || r.Verdict != Fault || r.Seq != 5 || r.Suppressed != 3 || r.Reason != "events could not be written: write audit log: write /dev/full: no space left on device" {
		t.Errorf("report: %+v", r)
	}
	if got[2].Seq != 6 || got[2].Verdict != Allow {
		t.Errorf("event after it: %+v", got[2])
	}
}

// A disk that fills up in the middle of a line leaves no broken line behind.
func TestLogShortWrite(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, Options{Dir: dir, MaxSize: 8 << 20})
	before := 0
	for l.size < 2<<20 { // the limit is of the process, whose other files are shorter: go test notes what tests read
		l.Write(Event{Kind: Policy, Verdict: Info, Reason: strings.Repeat("long ", 100)})
		before++
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	// The limit cuts the next line after ten bytes. Go ignores the SIGXFSZ of it.
	lim := old
	lim.Cur = uint64(l.size) + 10
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &lim); err != nil {
		t.Fatal(err)
	}
	l.Write(Event{Kind: DNS, Verdict: Deny})
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := l.Err(); !errors.Is(err, syscall.EFBIG) {
		t.Fatalf("Err: %v", err)
	}
	l.Write(Event{Kind: DNS, Verdict: Allow})
	raw, _ := os.ReadFile(filepath.Join(dir, FileName))
	for _, line := range strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n") {
		checkLine(t, []byte(line))
	}
	if got := read(t, dir); len(got) != before+2 || got[before+1].Seq != uint64(before+3) {
		t.Errorf("%d events before, then %+v", before, got[min(before, len(got)):])
	}
}

func TestLogAfterClose(t *testing.T) {
	l := openTest(t, Options{Dir: t.TempDir()})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l.Write(Event{Kind: DNS, Verdict: Deny})
	if l.Err() == nil {
		t.Error("a write after Close succeeded")
	}
	l.Close()
}

// A mirror that nobody reads holds nothing up.
func TestMirror(t *testing.T) {
	r, w := io.Pipe()
	dir := t.TempDir()
	l := openTest(t, Options{Dir: dir, Mirror: w})
	for range 3 * mirrorQueue {
		l.Write(Event{Kind: DNS, Verdict: Deny})
	}
	if got := read(t, dir); len(got) != 3*mirrorQueue {
		t.Errorf("%d events in the file", len(got))
	}
	for mirrored := bufio.NewReader(r); ; {
		line, err := mirrored.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		e, err := Decode(line)
		if err == nil && e.Kind == Guard { // how many are left out: on a busy machine it is said first
			continue
		}
		if err != nil || e.Seq != 1 {
			t.Errorf("mirrored %s, %v", line, err)
		}
		break
	}
	r.Close() // a reader that goes away: writes fail from here on
	l.Write(Event{Kind: DNS, Verdict: Deny})
	if l.Err() != nil {
		t.Error(l.Err())
	}
}
