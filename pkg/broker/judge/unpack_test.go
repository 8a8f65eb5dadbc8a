package judge

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestUnpack(t *testing.T) {
	body := []byte(strings.Repeat(`{"model":"a"}`, 1000))
	for _, encoding := range []string{"", "identity", "gzip", "GZIP", "deflate"} {
		sent := pack(t, strings.ToLower(encoding), body)
		for _, limit := range []int{len(body), 1 << 20} {
			got, refusal := Unpack(encoding, iotest.HalfReader(bytes.NewReader(sent)), limit, io.ReadAll)
			if refusal != nil || !bytes.Equal(got, body) {
				t.Errorf("%q within %d: %d bytes, %+v", encoding, limit, len(got), refusal)
			}
		}
		if _, refusal := Unpack(encoding, bytes.NewReader(sent), len(body)-1, io.ReadAll); refusal == nil || refusal.What != "size" {
			t.Errorf("%q: one byte too many: %+v", encoding, refusal)
		}
		if encoding == "" || encoding == "identity" {
			continue
		}
		for name, wrong := range map[string][]byte{
			"cut": sent[:len(sent)-1], "none": nil, "plain": body, "damaged": append(bytes.Clone(sent[:len(sent)-8]), 1, 2, 3, 4, 5, 6, 7, 8),
		} {
			if _, refusal := Unpack(encoding, bytes.NewReader(wrong), 1<<20, io.ReadAll); refusal == nil {
				t.Errorf("%q: what is %s passes", encoding, name)
			}
		}
	}
	for _, encoding := range []string{"zstd", "br", "gzip, gzip", "compress", " gzip"} {
		if _, refusal := Unpack(encoding, bytes.NewReader(body), 1<<20, io.ReadAll); refusal == nil {
			t.Errorf("%q passes", encoding)
		}
	}
}

// TestUnpackIsBounded has small bodies that would fill the memory, or never end.
func TestUnpackIsBounded(t *testing.T) {
	const limit = 1 << 20
	bomb := pack(t, "gzip", make([]byte, 64<<20))
	if len(bomb) > limit {
		t.Fatalf("the bomb has %d bytes", len(bomb))
	}
	if _, refusal := Unpack("gzip", bytes.NewReader(bomb), limit, io.ReadAll); refusal == nil || refusal.What != "size" {
		t.Errorf("64 MiB of zeros: %+v", refusal)
	}
	empty := pack(t, "gzip", nil)
	endless := &repeat{piece: empty}
	if _, refusal := Unpack("gzip", endless, limit, io.ReadAll); refusal == nil {
		t.Error("members that have nothing pass")
	}
	if endless.given > 2*limit {
		t.Errorf("%d bytes were read", endless.given)
	}
}

// repeat gives a piece again and again.
type repeat struct {
	piece []byte
	given int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.piece[r.given%len(r.piece):])
	r.given += n
	return n, nil
}
