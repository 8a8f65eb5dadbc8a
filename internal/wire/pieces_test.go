package wire

import (
	"reflect"
	"testing"
)

func TestPieces(t *testing.T) {
	for _, all := range [][][]byte{nil, {{}}, {[]byte("one")}, {[]byte("one"), {}, make([]byte, 1<<16-1)}} {
		got, err := Parted(Pieces(all...))
		if err != nil || !reflect.DeepEqual(got, all) {
			t.Errorf("%d pieces: got %d, %v", len(all), len(got), err)
		}
	}
	for _, bad := range []string{"\x00", "\x00\x01", "\x00\x00\x00", "\xff\xffshort"} {
		if _, err := Parted(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// FuzzParted: what a broker sends that was taken over is taken whole, or not at all.
func FuzzParted(f *testing.F) {
	f.Add(Pieces([]byte("one"), nil, []byte("two")))
	f.Add("\xff\xff")
	f.Fuzz(func(t *testing.T, text string) {
		if all, err := Parted(text); err == nil && Pieces(all...) != text {
			t.Errorf("%q is something else when put together again", text)
		}
	})
}
