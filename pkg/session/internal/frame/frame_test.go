package frame

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/agent-init/agent-init/pkg/session/protocol"
)

// frame is what a reader got.
type frame struct {
	k       Kind
	payload string
}

func readAll(r io.Reader, fromServer bool) ([]frame, error) {
	f := &Reader{R: r, FromServer: fromServer}
	var all []frame
	for {
		k, payload, err := f.Next()
		if err != nil {
			return all, err
		}
		all = append(all, frame{k, string(payload)})
	}
}

func TestFrames(t *testing.T) {
	long := strings.Repeat("x", maxPayload)
	var b []byte
	want := []frame{{Hello, "{}"}, {Input, "a"}, {Input, long}, {Detach, ""}, {Resize, string(Size(80, 24))}, {Switch, "n"}}
	for _, f := range want {
		b = Append(b, f.k, []byte(f.payload))
	}
	for name, r := range map[string]io.Reader{"at once": bytes.NewReader(b), "byte by byte": iotest.OneByteReader(bytes.NewReader(b)), "halves": iotest.HalfReader(bytes.NewReader(b))} {
		got, err := readAll(r, false)
		if err != io.EOF || len(got) != len(want) {
			t.Fatalf("%s: %d frames, %v", name, len(got), err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: frame %d is %q of %d bytes", name, i, got[i].k, len(got[i].payload))
			}
		}
	}
	for name, b := range map[string][]byte{
		"unknown":       Append(nil, 'Q', nil),
		"server's":      Append(nil, Output, []byte("x")),
		"too long":      header(nil, Input, maxPayload+1),
		"huge":          header(nil, Input, 1<<32-1),
		"empty input":   Append(nil, Input, nil),
		"wrong size":    Append(nil, Resize, []byte("xxx")),
		"detach, more":  Append(nil, Detach, []byte("x")),
		"switch, twice": Append(nil, Switch, []byte("nn")),
	} {
		if _, err := readAll(bytes.NewReader(b), false); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := readAll(bytes.NewReader(header(nil, Input, 3)), false); err != io.ErrUnexpectedEOF {
		t.Errorf("cut short: %v", err)
	}
}

// FuzzClientMessage: whatever a client sends, the server reads it in bounded
// memory, the same way however it is cut, and takes requests that are valid only.
func FuzzClientMessage(f *testing.F) {
	f.Add(Append(nil, Hello, []byte(`{"version":1,"verb":"attach","cols":80,"rows":24,"tty":{"dev":0,"rdev":0}}`)), 3)
	f.Add(Append(Append(nil, Input, []byte("ls\r")), Switch, []byte("n")), 1)
	f.Add(header(nil, Input, 1<<32-1), 2)
	f.Add(Append(nil, Hello, []byte(`{"version":1,"verb":"new","argv":["\u0000"]}`)), 7)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		whole, err := readAll(bytes.NewReader(b), false)
		pieces, err2 := readAll(&cutReader{b, max(1, cut&0xff)}, false)
		if len(whole) != len(pieces) || (err == io.EOF) != (err2 == io.EOF) {
			t.Fatalf("at once %d frames (%v), in pieces %d (%v)", len(whole), err, len(pieces), err2)
		}
		for i, fr := range whole {
			if fr != pieces[i] || len(fr.payload) > maxPayload {
				t.Fatalf("frame %d: %q and %q", i, fr, pieces[i])
			}
			if fr.k != Hello {
				continue
			}
			r, err := protocol.DecodeRequest([]byte(fr.payload))
			if err != nil {
				continue
			}
			if again, err := protocol.DecodeRequest(r.Encode()); err != nil || string(again.Encode()) != string(r.Encode()) {
				t.Fatalf("%+v became %+v (%v)", r, again, err)
			}
		}
	})
}

// FuzzServerMessage: whatever the server sends, a client gets the same however
// it is cut.
func FuzzServerMessage(f *testing.F) {
	f.Add(Append(Append(nil, Output, []byte("hello")), Ended, Number(3)), 2)
	f.Add(Append(nil, Window, []byte(`{"id":1}`)), 1)
	f.Add(header(nil, Screen, maxPayload+1), 5)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		whole, err := readAll(bytes.NewReader(b), true)
		pieces, err2 := readAll(&cutReader{b, max(1, cut&0xff)}, true)
		if !slices.Equal(whole, pieces) || (err == io.EOF) != (err2 == io.EOF) {
			t.Fatalf("at once %q (%v), in pieces %q (%v)", whole, err, pieces, err2)
		}
	})
}

// What is longer than a frame comes in several.
func TestLongPayload(t *testing.T) {
	long := strings.Repeat("x", 2*maxPayload+1)
	got, err := readAll(bytes.NewReader(Append(nil, Screen, []byte(long))), true)
	if err != io.EOF || len(got) != 3 || got[0].payload+got[1].payload+got[2].payload != long {
		t.Errorf("%d frames, %v", len(got), err)
	}
}

type cutReader struct {
	b []byte
	n int
}

func (r *cutReader) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.b[:min(r.n, len(r.b))])
	r.b = r.b[n:]
	return n, nil
}
