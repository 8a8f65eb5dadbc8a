package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
)

// rest reads what is there, and returns the first and last number and how many there were.
func rest(t *testing.T, r *Reader) (first, last, n uint64) {
	t.Helper()
	for {
		_, e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return first, last, n
		}
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1 {
			first = e.Seq
		}
		if last != 0 && e.Seq <= last {
			t.Fatalf("%d behind %d", e.Seq, last)
		}
		last = e.Seq
	}
}

// TestReader: each event is read once or counted, however far behind the reader is, and wherever it begins again.
func TestReader(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, Options{Dir: dir, MaxSize: 8 << 10, Files: 3})
	write := func(n int) {
		for range n {
			l.Write(Event{Kind: DNS, Verdict: Deny, Name: fmt.Sprintf("n%d.example", l.Head().Seq+1)})
		}
	}
	write(10)
	r, err := ReadAfter(dir+"/"+FileName, 0, os.Open)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if first, last, n := rest(t, r); first != 1 || last != 10 || n != 10 {
		t.Errorf("at first: %d to %d, %d", first, last, n)
	}
	seen := uint64(10)
	for range 20 { // over rotations, in small steps
		write(17)
		_, last, n := rest(t, r)
		seen += n
		if last != l.Head().Seq {
			t.Fatalf("read to %d of %d", last, l.Head().Seq)
		}
	}
	if seen != l.Head().Seq || r.Lost() != 0 {
		t.Errorf("%d of %d read, %d lost", seen, l.Head().Seq, r.Lost())
	}
	write(500) // more than the log keeps
	_, _, n := rest(t, r)
	if seen += n; seen+r.Lost() != l.Head().Seq || r.Lost() == 0 {
		t.Errorf("%d read and %d lost of %d", seen, r.Lost(), l.Head().Seq)
	}
	for _, after := range []uint64{0, 3, l.Head().Seq - 100, l.Head().Seq - 20, l.Head().Seq, l.Head().Seq + 5} {
		again, err := ReadAfter(dir+"/"+FileName, after, os.Open)
		if err != nil {
			t.Fatal(err)
		}
		_, _, n := rest(t, again)
		if want := l.Head().Seq - min(after, l.Head().Seq); n+again.Lost() != want {
			t.Errorf("after %d: %d read and %d lost, want %d", after, n, again.Lost(), want)
		}
		again.Close()
	}
}
