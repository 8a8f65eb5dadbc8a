package ui

import (
	"bufio"
	"crypto/sha1" // of the handshake (RFC 6455, section 1.3), where it protects nothing
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// protocolName is the WebSocket protocol of the page's terminals.
const protocolName = "agent-init"

// maxMessage bounds what a page sends at once, such as what somebody pastes; the page cuts longer ones.
const maxMessage = 64 << 10

// patience is how long a client may take for one frame, or to read one.
const patience = 30 * time.Second

// opcode is what a frame is (RFC 6455, section 5.2).
type opcode byte

const (
	opMore   opcode = 0
	opText   opcode = 1
	opBinary opcode = 2
	opClose  opcode = 8
	opPing   opcode = 9
	opPong   opcode = 10
)

// socket is the server's end of a WebSocket, without extensions.
type socket struct {
	conn net.Conn
	r    *bufio.Reader
	mu   sync.Mutex // one frame at a time
}

func isUpgrade(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// upgrade makes a WebSocket of a request. Who asks was judged before.
func upgrade(w http.ResponseWriter, r *http.Request) (*socket, error) {
	key := r.Header.Get("Sec-Websocket-Key")
	raw, err := base64.StdEncoding.DecodeString(key)
	has := func(header, word string) bool {
		return slices.ContainsFunc(headerList(r.Header, header), func(s string) bool { return strings.EqualFold(s, word) })
	}
	if r.Method != http.MethodGet || !r.ProtoAtLeast(1, 1) || r.ContentLength > 0 || len(r.TransferEncoding) > 0 ||
		!has("Connection", "upgrade") || !has("Upgrade", "websocket") ||
		r.Header.Get("Sec-Websocket-Version") != "13" || err != nil || len(raw) != 16 ||
		!slices.Contains(headerList(r.Header, "Sec-Websocket-Protocol"), protocolName) {
		return nil, errors.New("this is for a WebSocket of the page's")
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	s := &socket{conn: conn, r: rw.Reader}
	conn.SetDeadline(time.Now().Add(patience)) // the server's own no longer hold
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]), protocolName)
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetReadDeadline(time.Now().Add(2 * pulse))
	return s, nil
}

// frame is one frame of a client's, unmasked.
type frame struct {
	final bool
	op    opcode
	data  []byte
}

var errFrame = errors.New("a frame that no browser sends")

// readFrame reads a frame of at most limit bytes, strictly: masked, without extensions, lengths in their shortest form.
func readFrame(r io.Reader, limit int) (f frame, err error) {
	var head [14]byte
	if _, err = io.ReadFull(r, head[:2]); err != nil {
		return f, err
	}
	f.final, f.op = head[0]&0x80 != 0, opcode(head[0]&0x0f)
	if head[0]&0x70 != 0 || head[1]&0x80 == 0 {
		return f, errFrame
	}
	size := uint64(head[1] & 0x7f)
	switch size {
	case 126:
		if _, err = io.ReadFull(r, head[2:4]); err != nil {
			return f, err
		}
		if size = uint64(binary.BigEndian.Uint16(head[2:])); size < 126 {
			return f, errFrame
		}
	case 127:
		if _, err = io.ReadFull(r, head[2:10]); err != nil {
			return f, err
		}
		if size = binary.BigEndian.Uint64(head[2:]); size < 1<<16 {
			return f, errFrame
		}
	}
	control := f.op >= opClose
	known := f.op <= opBinary || control && f.op <= opPong
	if !known || !control && size > uint64(limit) || control && (size > 125 || !f.final) {
		return f, errFrame
	}
	var mask [4]byte
	if _, err = io.ReadFull(r, mask[:]); err != nil {
		return f, err
	}
	f.data = make([]byte, size)
	if _, err = io.ReadFull(r, f.data); err != nil {
		return f, err
	}
	for i := range f.data {
		f.data[i] ^= mask[i%4]
	}
	return f, nil
}

// read returns the next message, whole. It answers pings, and ends at a close.
func (s *socket) read() (op opcode, message []byte, err error) {
	for {
		f, err := readFrame(s.r, maxMessage-len(message))
		if err != nil {
			return 0, nil, err
		}
		s.conn.SetReadDeadline(time.Now().Add(2 * pulse)) // whatever came, somebody is there
		switch {
		case f.op == opClose:
			return 0, nil, io.EOF
		case f.op == opPing:
			if err := s.write(opPong, f.data); err != nil {
				return 0, nil, err
			}
			continue
		case f.op == opPong:
			continue
		case (f.op == opMore) != (op != 0):
			return 0, nil, errFrame // goes on with nothing, or begins anew in the middle
		case f.op != opMore:
			op = f.op
		}
		message = append(message, f.data...)
		if !f.final {
			continue
		}
		if op == opText && !utf8.Valid(message) {
			return 0, nil, errFrame
		}
		return op, message, nil
	}
}

// write sends one message. A client that doesn't read ends the connection after a while.
func (s *socket) write(op opcode, data []byte) error {
	head := append(make([]byte, 0, 10+len(data)), 0x80|byte(op))
	switch n := len(data); {
	case n < 126:
		head = append(head, byte(n))
	case n < 1<<16:
		head = binary.BigEndian.AppendUint16(append(head, 126), uint16(n))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 127), uint64(n))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn.SetWriteDeadline(time.Now().Add(patience))
	_, err := s.conn.Write(append(head, data...)) // in one packet, if it fits
	return err
}

// pulse is how often a socket asks whether somebody is there.
const pulse = time.Minute

// beat pings until the connection ends: a browser answers by itself.
func (s *socket) beat(done <-chan struct{}) {
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			if s.write(opPing, nil) != nil {
				s.conn.Close()
				return
			}
		}
	}
}

// close says why, and ends the connection.
func (s *socket) close(code uint16, why string) {
	s.write(opClose, append(binary.BigEndian.AppendUint16(nil, code), why[:min(len(why), 120)]...))
	s.conn.Close()
}
