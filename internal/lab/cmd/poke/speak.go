package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// speaker opens TLS to a host, and says over it what no client would.
type speaker struct {
	options
	security
}

func (s *speaker) open(host, protocol string) (*tls.Conn, error) {
	conf, err := s.config()
	if err != nil {
		return nil, err
	}
	if conf.ServerName == "" {
		conf.ServerName = host
	}
	conf.NextProtos, conf.InsecureSkipVerify = []string{protocol}, s.ca == ""
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	raw, err := s.dial(ctx, "tcp", net.JoinHostPort(host, "443"))
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, conf)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	if got := conn.ConnectionState().NegotiatedProtocol; got != protocol {
		conn.Close()
		return nil, fmt.Errorf("the server speaks %q", got)
	}
	conn.SetDeadline(time.Now().Add(s.timeout))
	return conn, nil
}

// speak sends bytes over TLS, and reads what comes back; ok if it begins with an answer of 200.
func speak(args []string) (detail, error) {
	var s speaker
	fs := flags("speak")
	s.options.register(fs, "")
	s.security.register(fs)
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	conn, err := s.open(a[0], "http/1.1")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, s.send); err != nil {
		return nil, err
	}
	var got bytes.Buffer
	for part := make([]byte, 4096); err == nil && got.Len() < 64<<10; {
		var n int
		n, err = conn.Read(part)
		got.Write(part[:n])
		conn.SetReadDeadline(time.Now().Add(time.Second)) // who answered may keep it open
	}
	if err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	out := detail{"answer": got.String(), "answers": strings.Count(got.String(), "HTTP/1.1 2")}
	if err == nil && !strings.HasPrefix(got.String(), "HTTP/1.1 200 ") {
		err = fmt.Errorf("answer: %.60q", got.String())
	}
	return out, err
}

// frames speaks HTTP/2 by the frame: one request of -field lines, after as many of a flood as -n says. ok if the request
// was answered by 200.
func frames(args []string) (detail, error) {
	var s speaker
	fs := flags("frames")
	s.options.register(fs, "")
	s.security.register(fs)
	flood := fs.String("flood", "", "reset, continuation, settings, ping, empty or bomb, before the request")
	n := fs.Int("n", 1000, "frames of the flood")
	split := fs.Bool("split", false, "each field in a frame of its own")
	var fields list
	fs.Var(&fields, "field", "NAME: VALUE, as it is; pseudo-headers, too")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	for i, line := range fields {
		if fields[i], err = strconv.Unquote(`"` + line + `"`); err != nil {
			return nil, usage("-field: %v", err)
		}
	}
	conn, err := s.open(a[0], "h2")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	f := &framing{Framer: http2.NewFramer(conn, conn), conn: conn, next: 1, done: make(chan struct{})}
	f.encoder = hpack.NewEncoder(&f.block)
	f.MaxHeaderListSize, f.ReadMetaHeaders = 1<<20, hpack.NewDecoder(4096, nil)
	io.WriteString(conn, http2.ClientPreface)
	f.WriteSettings()
	go f.read()
	err = f.flood(*flood, *n, fields)
	if err == nil {
		err = f.ask(fields, s.send, *split)
	}
	if err == nil {
		<-f.done
	} else {
		conn.SetReadDeadline(time.Now().Add(time.Second))
		<-f.done // which may say why
	}
	out := detail{"status": f.status, "goaway": f.goaway, "reset": f.reset}
	if f.status != "200" && err == nil {
		err = fmt.Errorf("status %q, reset %q, goaway %q", f.status, f.reset, f.goaway)
	}
	return out, err
}

// framing is one connection of HTTP/2.
type framing struct {
	*http2.Framer
	conn    net.Conn
	block   bytes.Buffer
	encoder *hpack.Encoder
	next    uint32        // stream
	asked   atomic.Uint32 // the one whose answer counts

	done                  chan struct{} // closed when the last stream, or the connection, is over
	status, reset, goaway string
}

// read reads until the request that counts is answered, or the connection is over.
func (f *framing) read() {
	defer close(f.done)
	for {
		got, err := f.ReadFrame()
		if err != nil {
			return
		}
		if id := got.Header().StreamID; id != 0 && id != f.asked.Load() {
			continue
		}
		switch got := got.(type) {
		case *http2.MetaHeadersFrame:
			if s := got.PseudoValue("status"); s != "" && !strings.HasPrefix(s, "1") {
				f.status = s
				if got.StreamEnded() {
					return
				}
			}
		case *http2.DataFrame:
			if got.StreamEnded() {
				return
			}
		case *http2.RSTStreamFrame:
			f.reset = got.ErrCode.String()
			return
		case *http2.GoAwayFrame:
			f.goaway = got.ErrCode.String()
			return
		}
	}
}

func (f *framing) head(fields []string) []byte {
	f.block.Reset()
	for _, line := range fields {
		from := strings.TrimPrefix(line, ":")
		name, value, _ := strings.Cut(from, ": ")
		f.encoder.WriteField(hpack.HeaderField{Name: line[:len(line)-len(from)] + name, Value: value})
	}
	return bytes.Clone(f.block.Bytes())
}

func (f *framing) stream() uint32 {
	f.next += 2
	return f.next - 2
}

// ask sends a request, with what it carries.
func (f *framing) ask(fields []string, body string, split bool) error {
	id := f.stream()
	f.asked.Store(id)
	for i, line := range fields {
		part := []string{line}
		if !split {
			part = fields
		}
		last := !split || i == len(fields)-1
		block := f.head(part)
		var err error
		if i == 0 {
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: last, EndStream: body == ""})
		} else {
			err = f.WriteContinuation(id, last, block)
		}
		if err != nil || last {
			if err == nil && body != "" {
				err = f.WriteData(id, true, []byte(body))
			}
			return err
		}
	}
	return nil
}

// flood sends many frames that cost the sender little.
func (f *framing) flood(kind string, n int, fields []string) error {
	var err error
	if kind == "continuation" || kind == "bomb" {
		id := f.stream()
		err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.head(fields)})
		line := "x-a: b"
		if kind == "bomb" {
			line = "x-" + strings.Repeat("a", 3000) + ": " + strings.Repeat("b", 900)
		}
		for i := 0; i < n && err == nil; i++ {
			block := f.head([]string{line})
			if kind == "bomb" && i > 0 {
				block = bytes.Repeat(block, 1000) // each is a byte, since it is in the table
			}
			err = f.WriteContinuation(id, i == n-1, block)
		}
		return err
	}
	for i := 0; i < n && err == nil; i++ {
		switch kind {
		case "":
			return nil
		case "reset":
			id := f.stream()
			if err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.head(fields), EndHeaders: true, EndStream: true}); err == nil {
				err = f.WriteRSTStream(id, http2.ErrCodeCancel)
			}
		case "settings":
			err = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(65535 + i%2)})
		case "ping":
			err = f.WritePing(false, [8]byte{byte(i)})
		case "empty":
			err = f.WriteData(1, false, nil)
		default:
			return usage("no flood %q", kind)
		}
	}
	return err
}
