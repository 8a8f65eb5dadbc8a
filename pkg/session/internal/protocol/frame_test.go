package protocol

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// frame is what a reader got.
type frame struct {
	k       Kind
	payload string
}

func readAll(r io.Reader, fromServer bool) ([]frame, error) {
	f := &FrameReader{R: r, FromServer: fromServer}
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
	long := strings.Repeat("x", MaxFromClient)
	var b []byte
	want := []frame{{KindHello, "{}"}, {KindInput, "a"}, {KindInput, long}, {KindDetach, ""}, {KindResize, string(EncodeSize(80, 24))}, {KindSwitch, "n"}}
	for _, f := range want {
		b = AppendFrame(b, f.k, []byte(f.payload))
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
		"unknown":       AppendFrame(nil, 'Q', nil),
		"server's":      AppendFrame(nil, KindOutput, []byte("x")),
		"too long":      AppendHeader(nil, KindInput, MaxFromClient+1),
		"huge":          AppendHeader(nil, KindInput, 1<<32-1),
		"empty input":   AppendFrame(nil, KindInput, nil),
		"wrong size":    AppendFrame(nil, KindResize, []byte("xxx")),
		"detach, more":  AppendFrame(nil, KindDetach, []byte("x")),
		"switch, twice": AppendFrame(nil, KindSwitch, []byte("nn")),
	} {
		if _, err := readAll(bytes.NewReader(b), false); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := readAll(bytes.NewReader(AppendHeader(nil, KindInput, 3)), false); err != io.ErrUnexpectedEOF {
		t.Errorf("cut short: %v", err)
	}
}

func TestRequests(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"version":1,"verb":"attach","cols":80,"rows":24,"tty":{"dev":1,"rdev":2}}`: true,
		`{"version":1,"verb":"new","name":"a.b-c","argv":["sh","-c","x"]}`:           true,
		`{"version":2,"verb":"attach"}`:                                              false,
		`{"version":1,"verb":"detonate"}`:                                            false,
		`{"version":1,"verb":"attach","shell":true}`:                                 false,
		`{"version":1,"verb":"attach","cols":-1}`:                                    false,
		`{"version":1,"verb":"attach","cols":100000}`:                                false,
		`{"version":1,"verb":"attach"} {}`:                                           false,
		`{"version":1,"verb":"new","name":"a b"}`:                                    false,
		`{"version":1,"verb":"new","name":"\u001b[31m"}`:                             false,
		`{"version":1,"verb":"new","argv":["a\u0000b"]}`:                             false,
		`{"version":1,"verb":"new","argv":["` + strings.Repeat("x", maxArgv) + `"]}`: false,
		`nonsense`: false,
	} {
		if _, err := DecodeRequest([]byte(text)); (err == nil) != ok {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

// FuzzClientMessage: whatever a client sends, the server reads it in bounded
// memory, the same way however it is cut, and takes requests that are valid only.
func FuzzClientMessage(f *testing.F) {
	f.Add(AppendFrame(nil, KindHello, []byte(`{"version":1,"verb":"attach","cols":80,"rows":24,"tty":{"dev":0,"rdev":0}}`)), 3)
	f.Add(AppendFrame(AppendFrame(nil, KindInput, []byte("ls\r")), KindSwitch, []byte("n")), 1)
	f.Add(AppendHeader(nil, KindInput, 1<<32-1), 2)
	f.Add(AppendFrame(nil, KindHello, []byte(`{"version":1,"verb":"new","argv":["\u0000"]}`)), 7)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		whole, err := readAll(bytes.NewReader(b), false)
		pieces, err2 := readAll(&cutReader{b, max(1, cut&0xff)}, false)
		if len(whole) != len(pieces) || (err == io.EOF) != (err2 == io.EOF) {
			t.Fatalf("at once %d frames (%v), in pieces %d (%v)", len(whole), err, len(pieces), err2)
		}
		for i, fr := range whole {
			if fr != pieces[i] || len(fr.payload) > MaxFromClient {
				t.Fatalf("frame %d: %q and %q", i, fr, pieces[i])
			}
			if fr.k != KindHello {
				continue
			}
			r, err := DecodeRequest([]byte(fr.payload))
			if err != nil {
				continue
			}
			if again, err := DecodeRequest(EncodeJSON(r)); err != nil || string(EncodeJSON(again)) != string(EncodeJSON(r)) {
				t.Fatalf("%+v became %+v (%v)", r, again, err)
			}
		}
	})
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
