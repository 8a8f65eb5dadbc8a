package onward

import (
	"crypto/tls"
	"encoding/binary"
	"net"
	"net/http"
)

// For each body that it sends, net/http has a buffer as large as the frames that the server takes, of 512 KiB at most, as
// long as the body lasts. Most servers take such frames, and a body may wait for its client or the server for hours. No
// setting of net/http's bounds that, so smallFrames changes what the server says.

// smallFrames has t send frames of 16 KiB over HTTP/2, the least that every server takes (RFC 9113, section 4.2).
func smallFrames(t *http.Transport) {
	t.CloseIdleConnections() // net/http fills TLSNextProto before
	// This one takes any net.Conn. net/http hands it one inside of a tls.Conn that is none.
	begin := t.TLSNextProto["unencrypted_http2"]
	t.TLSNextProto["h2"] = func(authority string, c *tls.Conn) http.RoundTripper {
		return begin(authority, tls.Client(inside{&framed{Conn: c}}, nil))
	}
}

type inside struct{ *framed }

func (i inside) UnencryptedNetConn() net.Conn { return i.framed }

// framed follows the frames that come (RFC 9113, section 4.1).
type framed struct {
	*tls.Conn
	head [9]byte
	have int    // bytes of the head
	left uint32 // bytes of the payload
	in   int    // bytes of a setting
	id   byte   // of the setting, if it is a known one
}

func (f *framed) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	f.follow(b[:n])
	return n, err
}

const (
	frameOfSettings = 4
	maxFrameSize    = 5
)

// follow changes settings in what comes next.
func (f *framed) follow(b []byte) {
	for len(b) > 0 {
		switch {
		case f.left == 0:
			n := copy(f.head[f.have:], b)
			b = b[n:]
			if f.have += n; f.have == len(f.head) {
				f.have, f.in, f.left = 0, 0, binary.BigEndian.Uint32(f.head[:])>>8
			}
		case f.head[3] != frameOfSettings:
			n := min(uint32(len(b)), f.left)
			b, f.left = b[n:], f.left-n
		default:
			f.setting(b)
			b, f.left = b[1:], f.left-1
		}
	}
}

// setting takes the next byte of a frame of settings, each of which has two for its name and four for its value.
func (f *framed) setting(b []byte) {
	switch value := [...]byte{2: 0, 0, 16 << 10 >> 8, 0}; {
	case f.in == 0:
		f.id = 0
		if b[0] != 0 {
			f.id = 0xff
		}
	case f.in == 1:
		f.id |= b[0]
	case f.id == maxFrameSize:
		b[0] = value[f.in]
	}
	f.in = (f.in + 1) % 6
}
