package terminal

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var every = flag.Bool("every", false, "restore at every place of the recordings")

// recording is what a real program wrote to a terminal: testdata/NAME-COLSxROWS.
type recording struct {
	name       string
	cols, rows int
	data       []byte
}

func recordings(t testing.TB) []recording {
	t.Helper()
	files, err := filepath.Glob("testdata/*-*x*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	var out []recording
	for _, f := range files {
		r := recording{}
		var size string
		r.name, size, _ = strings.Cut(filepath.Base(f), "-")
		if _, err := fmt.Sscanf(size, "%dx%d", &r.cols, &r.rows); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		if r.data, err = os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// TestRecordings restores at up to 500 places of each recording, at each with -every, and
// goes on with the rest from there.
func TestRecordings(t *testing.T) {
	for _, r := range recordings(t) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			full := New(Options{Cols: r.cols, Rows: r.rows})
			full.Write(r.data)
			term := New(Options{Cols: r.cols, Rows: r.rows})
			step := 1
			if !*every {
				step += len(r.data) / 500
			}
			for i := range r.data {
				term.Write(r.data[i : i+1])
				if i%step != 0 || !term.scan.ready() {
					continue
				}
				other := restored(term)
				compare(t, fmt.Sprintf("restored after %d bytes", i+1), term, other)
				if i%(97*step) == 0 {
					other.Write(r.data[i+1:])
					compare(t, fmt.Sprintf("went on after %d bytes", i+1), full, other)
				}
				if t.Failed() {
					return
				}
			}
			compare(t, "byte by byte", full, term)
		})
	}
}

// TestSplit writes in pieces of random lengths.
func TestSplit(t *testing.T) {
	for _, r := range recordings(t) {
		full := New(Options{Cols: r.cols, Rows: r.rows})
		full.Write(r.data)
		for seed := range uint64(20) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			term := New(Options{Cols: r.cols, Rows: r.rows})
			for data := r.data; len(data) > 0; {
				n := 1 + rnd.IntN(min(len(data), 1<<rnd.IntN(12)))
				term.Write(data[:n])
				data = data[n:]
			}
			compare(t, r.name, full, term)
		}
	}
}
