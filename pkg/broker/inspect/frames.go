package inspect

import "encoding/binary"

// frames follows one direction of a WebSocket (RFC 6455, section 5.2), so that nothing else passes for one.
type frames struct {
	masked bool  // a client's are, a server's are not
	most   int64 // bytes of payload; 0: any number; less: none

	payload int64
	heads   int64 // bytes of all heads
	head    [14]byte
	have    int    // bytes of the head
	left    uint64 // bytes of the payload
}

// walk judges the next bytes.
func (f *frames) walk(b []byte) *no {
	for len(b) > 0 {
		if f.left > 0 {
			n := uint64(len(b))
			n = min(n, f.left)
			b, f.left = b[n:], f.left-n
			continue
		}
		f.head[f.have] = b[0]
		f.have++
		b = b[1:]
		if f.have == 2 && f.odd() {
			return refusal("protocol", "what was sent is no frame of a WebSocket")
		}
		if f.have < f.length() {
			continue
		}
		if n := f.begin(); n != nil {
			return n
		}
		f.have = 0
	}
	return nil
}

// length is that of the head that there is a part of.
func (f *frames) length() int {
	if f.have < 2 {
		return 2
	}
	n := 2
	switch f.head[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if f.head[1]&0x80 != 0 {
		n += 4
	}
	return n
}

// odd judges the first two bytes of a head.
func (f *frames) odd() bool {
	opcode, size := f.head[0]&0x0f, f.head[1]&0x7f
	control := opcode >= 8
	return opcode > 10 || opcode > 2 && !control || // reserved
		f.head[0]&0x30 != 0 || // no extension has these
		f.head[0]&0x40 != 0 && f.most != 0 || // permessage-deflate's (RFC 7692), which nobody offers where bytes count
		f.head[1]&0x80 != 0 != f.masked ||
		control && (size > 125 || f.head[0]&0xc0 != 0x80)
}

const endless = 1 << 62

// freeHeads are the bytes of heads that count for nothing. A client's has four that it may choose, and needs no payload.
const freeHeads = 4 << 10

// begin counts what follows a whole head.
func (f *frames) begin() *no {
	size := uint64(f.head[1] & 0x7f)
	switch size {
	case 126:
		size = uint64(binary.BigEndian.Uint16(f.head[2:]))
	case 127:
		size = binary.BigEndian.Uint64(f.head[2:])
	}
	if size > endless-uint64(f.payload) {
		return refusal("protocol", "what was sent is no frame of a WebSocket")
	}
	f.payload += int64(size)
	f.heads += int64(f.have)
	if f.most != 0 && f.payload+max(0, f.heads-freeHeads) > max(0, f.most) {
		return refusal("size", "more was sent over the WebSocket than max_upload admits")
	}
	f.left = size
	return nil
}
