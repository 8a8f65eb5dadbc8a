package terminal

import (
	"bytes"
	"fmt"
	"testing"
)

// text is lines of 80 columns, as cat shows a file.
func text() []byte {
	var b bytes.Buffer
	for i := range 1000 {
		fmt.Fprintf(&b, "%06d the quick brown fox jumps over the lazy dog; 0123456789 abcdefghijklmnopqr\r\n", i)
	}
	return b.Bytes()
}

func benchmarkWrite(b *testing.B, data []byte) {
	t := New(Options{Cols: 200, Rows: 50})
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		t.Write(data)
	}
}

func BenchmarkPlain(b *testing.B) { benchmarkWrite(b, text()) }

func BenchmarkColored(b *testing.B) {
	benchmarkWrite(b, bytes.ReplaceAll(text(), []byte(" "), []byte(" \x1b[38;5;120m")))
}

func BenchmarkWide(b *testing.B) {
	benchmarkWrite(b, bytes.ReplaceAll(text(), []byte("the quick brown fox"), []byte("日本語の文字がここにある→─│✓")))
}
