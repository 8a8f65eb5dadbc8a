package session

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
	k       kind
	payload string
}

func readAll(r io.Reader, fromServer bool) ([]frame, error) {
	f := &frameReader{r: r, fromServer: fromServer}
	var all []frame
	for {
		k, payload, err := f.next()
		if err != nil {
			return all, err
		}
		all = append(all, frame{k, string(payload)})
	}
}

func TestFrames(t *testing.T) {
	long := strings.Repeat("x", maxFromClient)
	var b []byte
	want := []frame{{kindHello, "{}"}, {kindInput, "a"}, {kindInput, long}, {kindDetach, ""}, {kindResize, string(encodeSize(80, 24))}, {kindSwitch, "n"}}
	for _, f := range want {
		b = appendFrame(b, f.k, []byte(f.payload))
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
		"unknown":       appendFrame(nil, 'Q', nil),
		"server's":      appendFrame(nil, kindOutput, []byte("x")),
		"too long":      appendHeader(nil, kindInput, maxFromClient+1),
		"huge":          appendHeader(nil, kindInput, 1<<32-1),
		"empty input":   appendFrame(nil, kindInput, nil),
		"wrong size":    appendFrame(nil, kindResize, []byte("xxx")),
		"detach, more":  appendFrame(nil, kindDetach, []byte("x")),
		"switch, twice": appendFrame(nil, kindSwitch, []byte("nn")),
	} {
		if _, err := readAll(bytes.NewReader(b), false); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := readAll(bytes.NewReader(appendHeader(nil, kindInput, 3)), false); err != io.ErrUnexpectedEOF {
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
		if _, err := decodeRequest([]byte(text)); (err == nil) != ok {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

// FuzzClientMessage: whatever a client sends, the server reads it in bounded
// memory, the same way however it is cut, and takes requests that are valid only.
func FuzzClientMessage(f *testing.F) {
	f.Add(appendFrame(nil, kindHello, []byte(`{"version":1,"verb":"attach","cols":80,"rows":24,"tty":{"dev":0,"rdev":0}}`)), 3)
	f.Add(appendFrame(appendFrame(nil, kindInput, []byte("ls\r")), kindSwitch, []byte("n")), 1)
	f.Add(appendHeader(nil, kindInput, 1<<32-1), 2)
	f.Add(appendFrame(nil, kindHello, []byte(`{"version":1,"verb":"new","argv":["\u0000"]}`)), 7)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		whole, err := readAll(bytes.NewReader(b), false)
		pieces, err2 := readAll(&cutReader{b, max(1, cut&0xff)}, false)
		if len(whole) != len(pieces) || (err == io.EOF) != (err2 == io.EOF) {
			t.Fatalf("at once %d frames (%v), in pieces %d (%v)", len(whole), err, len(pieces), err2)
		}
		for i, fr := range whole {
			if fr != pieces[i] || len(fr.payload) > maxFromClient {
				t.Fatalf("frame %d: %q and %q", i, fr, pieces[i])
			}
			if fr.k != kindHello {
				continue
			}
			r, err := decodeRequest([]byte(fr.payload))
			if err != nil {
				continue
			}
			if again, err := decodeRequest(encodeJSON(r)); err != nil || string(encodeJSON(again)) != string(encodeJSON(r)) {
				t.Fatalf("%+v became %+v (%v)", r, again, err)
			}
		}
	})
}

// FuzzServerMessage: whatever the server sends, a client shows the same however
// it is cut.
func FuzzServerMessage(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, kindOutput, []byte("hello")), kindEnded, encodeCode(3)), 2)
	f.Add(appendFrame(nil, kindWindow, []byte(`{"id":1}`)), 1)
	f.Add(appendHeader(nil, kindScreen, maxFromServer+1), 5)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		feed := func(step int) (shown []byte, handled []frame, err error) {
			var in incoming
			for rest := b; len(rest) > 0 && err == nil; rest = rest[min(step, len(rest)):] {
				err = in.feed(rest[:min(step, len(rest))], func(p []byte) error {
					shown = append(shown, p...)
					return nil
				}, func(k kind, p []byte) error {
					handled = append(handled, frame{k, string(p)})
					return nil
				})
			}
			return shown, handled, err
		}
		shown, handled, err := feed(max(1, len(b)))
		shown2, handled2, err2 := feed(max(1, cut&0xff))
		if !bytes.Equal(shown, shown2) || len(handled) != len(handled2) || (err == nil) != (err2 == nil) {
			t.Fatalf("at once %q %q %v, in pieces %q %q %v", shown, handled, err, shown2, handled2, err2)
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
