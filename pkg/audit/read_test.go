package audit

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	for name, text := range map[string]string{".2": "a\nb\n", ".1": "c\n" + strings.Repeat("x", 10*maxEncoded) + "\nd\n", "": "e\nf\ncut o"} {
		if err := os.WriteFile(path+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	if err := Lines(path, func(l []byte) bool { got = append(got, strings.TrimSpace(string(l))); return true }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "c", "d", "e", "f"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	got = nil
	if err := Lines(path, func(l []byte) bool { got = append(got, string(l)); return len(got) < 3 }); err != nil || len(got) != 3 {
		t.Errorf("did not stop: %q, %v", got, err)
	}
	if err := Lines(path+"x", func([]byte) bool { return true }); err == nil {
		t.Error("no log, and no error")
	}
}

// TestLinesRotated: whoever reads while the log is rotated misses nothing that was
// there when he began but what is thrown away, and gets all once and in order.
func TestLinesRotated(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(Options{Dir: dir, MaxSize: 2 * maxEncoded, Files: 201})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	write := func() { l.Write(Event{Kind: Guard, Verdict: Info, Reason: strings.Repeat("y", 1200)}) }
	for range 50 {
		write()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 600 {
			write()
		}
	}()
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		var last uint64
		if err := Lines(filepath.Join(dir, FileName), func(line []byte) bool {
			e, err := Decode(line)
			if err != nil || e.Seq != last+1 {
				t.Errorf("%d after %d: %v", e.Seq, last, err)
			}
			last = e.Seq
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if last < 50 {
			t.Errorf("%d lines", last)
		}
	}
}

func TestFollow(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(Options{Dir: dir, MaxSize: maxEncoded + 1, Files: 51})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var mu sync.Mutex
	var got []uint64
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Follow(ctx, filepath.Join(dir, FileName), begun, func(line []byte) {
			e, err := Decode(line)
			if err != nil {
				t.Errorf("%q: %v", line, err)
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, e.Seq)
		})
	}()
	last := func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		if len(got) == 0 {
			return 0
		}
		return got[len(got)-1]
	}
	await := func() {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); last() != l.seq; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("saw %d, not %d", last(), l.seq)
			}
		}
	}
	<-begun
	for i := range 40 {
		l.Write(Event{Kind: Guard, Verdict: Info, Reason: strings.Repeat("y", 1200)})
		if i%7 != 6 { // several rotations between two looks
			continue
		}
		await()
	}
	await()
	if err := os.Truncate(filepath.Join(dir, FileName), 0); err != nil {
		t.Fatal(err)
	}
	l.Write(Event{Kind: Guard, Verdict: Info, Reason: "shorter than what was there"})
	await()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for i, seq := range got {
		if seq != uint64(i+1) {
			t.Fatalf("line %d is %d", i+1, seq)
		}
	}
}
