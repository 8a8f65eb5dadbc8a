package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sourceOf is a source that holds b and then ends.
func sourceOf(b []byte) *source { return sourceFrom(bytes.NewReader(b)) }

// sourceFrom is a source of what r has, a read at a time.
func sourceFrom(r io.Reader) *source {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		panic(err)
	}
	f := &feed{from: r, in: ends[0], out: ends[1]}
	s := &source{raw: f}
	s.attempt = s.try
	runtime.AddCleanup(s, func(f *feed) { unix.Close(f.in); unix.Close(f.out) }, f)
	return s
}

// feed is a socket that has what a reader gives.
type feed struct {
	syscall.RawConn
	from    io.Reader
	in, out int
	buf     [bufferSize]byte
}

func (f *feed) Read(try func(uintptr) bool) error {
	for !try(uintptr(f.in)) {
		n, err := f.from.Read(f.buf[:])
		unix.Write(f.out, f.buf[:n])
		if err != nil {
			unix.Close(f.out)
			f.out = -1
		}
	}
	return nil
}

// vec is b behind its length, in n bytes.
func vec(n int, b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b)))[4-n:], b...)
}

// sni is a server_name extension of entries.
func sni(entries ...[]byte) []byte {
	return slices.Concat([]byte{0, 0}, vec(2, vec(2, slices.Concat(entries...))))
}

func entry(kind byte, name string) []byte { return append([]byte{kind}, vec(2, []byte(name))...) }

// handshake is a ClientHello message with these extensions; none at all for nil.
func handshake(extensions ...[]byte) []byte {
	body := slices.Concat([]byte{3, 3}, make([]byte, 32), vec(1, nil), vec(2, []byte{0x13, 1, 0xc0, 0x2b}), vec(1, []byte{0}))
	if extensions != nil {
		body = append(body, vec(2, slices.Concat(extensions...))...)
	}
	return slices.Concat([]byte{1}, vec(3, body))
}

// records wraps a message in records of at most n bytes.
func records(message []byte, n int) []byte {
	var b []byte
	for part := range slices.Chunk(message, n) {
		b = append(append(b, 22, 3, 1), vec(2, part)...)
	}
	return b
}

func helloFor(name string) []byte { return records(handshake(sni(entry(0, name))), 1<<14) }

func TestReadHello(t *testing.T) {
	ok := handshake(sni(entry(0, "ok.test")))
	other := []byte{0, 43, 0, 3, 2, 3, 4}
	for _, tt := range []struct {
		label string
		in    []byte
		name  string
		err   error
	}{
		{"plain", records(ok, 1<<14), "ok.test", nil},
		{"E45 one byte in each record", records(ok, 1), "ok.test", nil},
		{"E45 three records", records(ok, len(ok)/3+1), "ok.test", nil},
		{"other extensions", records(handshake(other, sni(entry(0, "OK.test"))), 1<<14), "OK.test", nil},
		{"E46 ech beside an outer name", records(handshake([]byte{0xfe, 0x0d, 0, 4, 0, 1, 2, 3}, sni(entry(0, "ok.test"))), 1<<14), "ok.test", nil},
		{"E44 no name", records(handshake(other), 1<<14), "", refusedNoSNI},
		{"E44 no extensions", records(handshake(), 1<<14), "", refusedNoSNI},
		{"E44 empty name", records(handshake(sni(entry(0, ""))), 1<<14), "", refusedSNI},
		{"E44 empty list", records(handshake(sni()), 1<<14), "", refusedSNI},
		{"E44 empty extension", records(handshake([]byte{0, 0, 0, 0}), 1<<14), "", refusedSNI},
		{"E44 two names", records(handshake(sni(entry(0, "ok.test"), entry(0, "evil.test"))), 1<<14), "", refusedManySNI},
		{"E44 a name of another type", records(handshake(sni(entry(0, "ok.test"), entry(7, "evil.test"))), 1<<14), "", refusedManySNI},
		{"E44 only a name of another type", records(handshake(sni(entry(7, "ok.test"))), 1<<14), "", refusedSNI},
		{"E44 two extensions", records(handshake(sni(entry(0, "ok.test")), sni(entry(0, "evil.test"))), 1<<14), "", refusedManySNI},
		{"any extension twice", records(handshake(other, other, sni(entry(0, "ok.test"))), 1<<14), "", refusedHello},
		{"trailing dot", helloFor("ok.test."), "", refusedSNI},
		{"bytes behind the list", records(handshake([]byte{0, 0, 0, 13, 0, 10, 0, 0, 7, 'o', 'k', '.', 't', 'e', 's', 't', 'x'}), 1<<14), "", refusedSNI},
		{"E47 ssh", []byte("SSH-2.0-OpenSSH_9.9\r\n"), "", refusedNotTLS},
		{"E47 http", []byte("GET / HTTP/1.1\r\n"), "", refusedNotTLS},
		{"one foreign byte", []byte("S"), "", refusedNotTLS},
		{"sslv2", []byte{0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10}, "", refusedSSL2},
		{"a high first byte", []byte{0x80, 0x2e, 9}, "", refusedNotTLS},
		{"another major version", []byte{22, 2}, "", refusedNotTLS},
		{"data first", []byte{23, 3, 3, 0, 1, 0}, "", refusedNotHello},
		{"alert first", []byte{21, 3, 3, 0, 2, 1, 0}, "", refusedNotHello},
		{"alert between", slices.Concat(records(ok[:20], 1<<14), []byte{21, 3, 3, 0, 2, 1, 0}, records(ok[20:], 1<<14)), "", refusedNotHello},
		{"server hello", records([]byte{2, 0, 0, 0}, 1<<14), "", refusedNotHello},
		{"empty record", []byte{22, 3, 1, 0, 0}, "", refusedRecord},
		{"record too long", []byte{22, 3, 1, 0x40, 1}, "", refusedRecord},
		{"hello too long", records(append([]byte{1, 1, 0, 0}, make([]byte, 100)...), 1<<14), "", refusedHelloSize},
		{"records too long", records(append([]byte{1, 0, 0xff, 0}, make([]byte, 30000)...), 1), "", refusedHelloSize},
		{"something behind the hello", records(append(slices.Clone(ok), 1, 0, 0, 0), 1<<14), "", refusedHello},
		{"nothing", nil, "", io.EOF},
		{"half", records(ok, 1<<14)[:40], "", io.ErrUnexpectedEOF},
	} {
		raw, got, err := readHello(sourceOf(tt.in))
		name := got.name
		if name != tt.name || err != tt.err {
			t.Errorf("%s: %q, %v; want %q, %v", tt.label, name, err, tt.name, tt.err)
		}
		if err == nil && !bytes.Equal(raw, tt.in) {
			t.Errorf("%s: the bytes were changed", tt.label)
		}
	}
}

func TestReadHelloOfMostRecords(t *testing.T) {
	long := records(handshake(append([]byte{0xff, 1}, vec(2, make([]byte, 9000))...), sni(entry(0, "ok.test"))), 1)
	if len(long) > maxHello {
		t.Fatalf("%d bytes", len(long))
	}
	raw, got, err := readHello(sourceOf(long))
	name := got.name
	if err != nil || name != "ok.test" || len(raw) != len(long) {
		t.Errorf("%q, %v", name, err)
	}
}

// FuzzClientHello holds the reader against crypto/tls: where the gate sees a
// name, a real server sees the same one; and where a real server sees a name,
// the gate sees no other.
func FuzzClientHello(f *testing.F) {
	for _, c := range []*tls.Config{insecure("ok.test"), {ServerName: "ok.test", MaxVersion: tls.VersionTLS12}, {InsecureSkipVerify: true}} {
		c.InsecureSkipVerify = true
		h := clientHello(f, c)
		f.Add(h)
		f.Add(records(h[recordHeader:], 100))
	}
	f.Add(helloFor("ok.test"))
	f.Add(records(handshake(sni(entry(0, "ok.test"), entry(0, "evil.test"))), 50))
	f.Add(records(handshake(sni(entry(0, "ok.test")), sni(entry(0, "evil.test"))), 1<<14))
	f.Add(helloFor("127.0.0.1"))
	f.Add(helloFor(strings.Repeat("a", 256)))
	f.Add([]byte("SSH-2.0-x\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		raw, got, err := readHello(sourceOf(in))
		name := got.name
		if !bytes.HasPrefix(in, raw) {
			t.Fatal("the bytes were changed")
		}
		other, ok := serverSees(in)
		// What crypto/tls refuses altogether may pass: no such server serves it.
		if err == nil && ok && other != name {
			t.Errorf("the gate sees %q, crypto/tls %q", name, other)
		}
		if len(in) < 4096 {
			raw2, got2, err2 := readHello(sourceFrom(&trickle{in}))
			if got2.name != name || !bytes.Equal(raw, raw2) && err == nil || (err == nil) != (err2 == nil) {
				t.Errorf("byte by byte: %q %v, at once: %q %v", got2.name, err2, name, err)
			}
		}
	})
}

// trickle reads one byte at a time.
type trickle struct{ b []byte }

func (s *trickle) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	p[0], s.b = s.b[0], s.b[1:]
	return 1, nil
}

// serverSees returns the server name that crypto/tls finds in in.
func serverSees(in []byte) (name string, ok bool) {
	stop := errors.New("seen")
	tls.Server(&script{in: bytes.NewReader(in)}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = h.ServerName, true
		return nil, stop
	}}).HandshakeContext(context.Background())
	return name, ok
}

// script is a connection that reads from a script.
type script struct {
	net.Conn
	in io.Reader
}

func (s *script) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s *script) Write(p []byte) (int, error)      { return len(p), nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
func (s *script) Close() error                     { return nil }

func TestIsRetry(t *testing.T) {
	hrr := slices.Concat([]byte{2, 0, 0, 80, 3, 3}, retryRandom(), make([]byte, 48))
	hello := slices.Concat([]byte{2, 0, 0, 80, 3, 3}, make([]byte, 80))
	warning := []byte{21, 3, 3, 0, 2, 1, 112}
	for _, tt := range []struct {
		label      string
		in         []byte
		ask, known bool
	}{
		{"retry", records(hrr, 1<<14), true, true},
		{"retry in pieces", records(hrr, 7), true, true},
		{"retry behind a warning", append(slices.Clone(warning), records(hrr, 1<<14)...), true, true},
		{"hello", records(hello, 1<<14), false, true},
		{"the beginning of one", records(hrr, 1<<14)[:30], false, false},
		{"a warning", warning, false, false},
		{"nothing", nil, false, false},
		{"not tls", []byte("HTTP/1.1 400"), false, true},
	} {
		if ask, known := isRetry(tt.in); ask != tt.ask || known != tt.known {
			t.Errorf("%s: %v, %v", tt.label, ask, known)
		}
	}
}

// retryRandom is the random of a HelloRetryRequest, from RFC 8446, section 4.1.3.
func retryRandom() []byte {
	return []byte{0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
		0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c}
}
