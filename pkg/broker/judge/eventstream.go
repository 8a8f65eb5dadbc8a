package judge

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
)

// eventStream is the content type of Bedrock's streams.
const eventStream = "application/vnd.amazon.eventstream"

const (
	preludeSize    = 12 // the lengths of the message and of its headers, and a checksum of the two
	checksumSize   = 4
	maxMessage     = 16 << 20 // by the specification, with what follows
	maxHeaders     = 128 << 10
	maxBase64Chunk = 1 << 20 // of a message that is kept until it is whole
)

// eventMessages reads the payloads of messages in AWS's encoding for streams of events
// (https://smithy.io/2.0/aws/amazon-eventstream.html), and keeps nothing of them. What is no such message ends it:
// nothing behind that has a known beginning.
type eventMessages struct {
	payload func([]byte)
	end     func() // of a message

	prelude [preludeSize]byte
	have    int // bytes of the prelude
	headers int // bytes that are left of each part
	body    int
	trailer int
	broken  bool
}

func (m *eventMessages) write(p []byte) {
	for len(p) > 0 && !m.broken {
		switch {
		case m.have < preludeSize:
			n := copy(m.prelude[m.have:], p)
			m.have, p = m.have+n, p[n:]
			if m.have == preludeSize {
				m.begin()
			}
		case m.headers > 0:
			n := min(m.headers, len(p))
			m.headers, p = m.headers-n, p[n:]
		case m.body > 0:
			n := min(m.body, len(p))
			m.payload(p[:n])
			m.body, p = m.body-n, p[n:]
		default:
			n := min(m.trailer, len(p))
			m.trailer, p = m.trailer-n, p[n:]
			if m.trailer == 0 {
				m.have = 0
				m.end()
			}
		}
	}
}

// begin takes the prelude of a message.
func (m *eventMessages) begin() {
	total := binary.BigEndian.Uint32(m.prelude[0:])
	headers := binary.BigEndian.Uint32(m.prelude[4:])
	if crc32.ChecksumIEEE(m.prelude[:8]) != binary.BigEndian.Uint32(m.prelude[8:]) || total > maxMessage ||
		headers > maxHeaders || total < preludeSize+headers+checksumSize {
		m.broken = true
		return
	}
	m.headers, m.trailer = int(headers), checksumSize
	m.body = int(total-headers) - preludeSize - checksumSize
}

// base64Events unpacks the events of invoke-with-response-stream, each of which is a document in the base64 of another:
// {"bytes": …}.
type base64Events struct {
	data func([]byte)
	end  func()

	kept []byte
	long bool // there was more than is kept
}

func (b *base64Events) write(p []byte) {
	if len(b.kept)+len(p) > maxBase64Chunk {
		b.long = true
		return
	}
	b.kept = append(b.kept, p...)
}

func (b *base64Events) flush() {
	if chunk, err := parse(b.kept); err == nil && !b.long {
		if event, err := base64.StdEncoding.AppendDecode(nil, chunk.get("bytes").str()); err == nil {
			b.data(event)
		}
	}
	b.kept, b.long = b.kept[:0], false
	b.end()
}
