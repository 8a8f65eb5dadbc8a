package gateway

import (
	"io"
	"slices"
	"strconv"
	"strings"
)

const (
	maxChunkLine  = 256     // bytes of one chunk's size and extensions
	maxExtensions = 4 << 10 // bytes of chunk extensions of a body
	maxTrailer    = 8 << 10 // bytes
)

// forwardBody passes a body on. It passes on nothing that it has not understood, so that
// after a refusal src holds the first byte that was not.
func forwardBody(src *source, dst io.Writer, length int64) error {
	if length == chunked {
		return forwardChunks(src, dst)
	}
	return ended(src.forward(dst, length), true)
}

// ended is err; an end where more should follow is unexpected.
func ended(err error, more bool) error {
	if err == io.EOF && more {
		return io.ErrUnexpectedEOF
	}
	return err
}

// forwardChunks passes a chunked body on (RFC 9112, section 7.1), with its trailer.
func forwardChunks(src *source, dst io.Writer) error {
	for extensions := 0; ; {
		var size int64
		err := forwardLine(src, dst, maxChunkLine, refusedChunk, func(line string) bool {
			n, ext, ok := chunkLine(line)
			size, extensions = n, extensions+ext
			return ok && extensions <= maxExtensions
		})
		if err != nil {
			return err
		}
		if size == 0 {
			return forwardTrailer(src, dst)
		}
		if err := forwardBody(src, dst, size); err != nil {
			return err
		}
		if err := forwardLine(src, dst, 2, refusedChunk, func(string) bool { return true }); err != nil {
			return err
		}
	}
}

// forwardLine passes a line on, if it is good, else it returns bad.
func forwardLine(src *source, dst io.Writer, limit int, bad *refusal, good func(line string) bool) error {
	n, err := readLine(src, 0, limit, bad)
	if err != nil {
		return err
	}
	if !good(string(src.held()[:n-2])) {
		return bad
	}
	return src.forward(dst, int64(n))
}

// chunkLine returns the size that a chunk begins with, and how many bytes of extensions follow it. Space around the
// size is not accepted: some readers see another size then. Nor is any in the extensions, where RFC 9112 has it for old
// senders only: a server that knows no chunks would see a request line.
func chunkLine(line string) (size int64, extensions int, ok bool) {
	digits, ext, _ := strings.Cut(line, ";")
	size, err := strconv.ParseInt(digits, 16, 64)
	foreign := func(r rune) bool { return !isTokens(string(r)) && r != ';' && r != '=' && r != '"' }
	ok = err == nil && len(digits) <= 15 && strings.Trim(digits, "0123456789abcdefABCDEF") == "" && !strings.ContainsFunc(ext, foreign)
	return size, len(line) - len(digits), ok
}

// forwardTrailer passes the lines on that end a chunked body.
func forwardTrailer(src *source, dst io.Writer) error {
	for left, last := maxTrailer, false; !last; {
		err := forwardLine(src, dst, left, refusedTrailer, func(line string) bool {
			left -= len(line) + 2
			last = line == ""
			var f fields
			return last || f.add(line) == nil && !slices.Contains(framing, f[0].name)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// framing say where a message ends or whom it is for, which a trailer may not (RFC 9110, section 6.5.1).
var framing = []string{"host", "content-length", "transfer-encoding", "expect", "connection", "upgrade", "http2-settings"}

// response says where an HTTP response ends (RFC 9112, section 6.3).
type response struct {
	status   int
	length   int64 // of the body; chunked, or untilEnd
	switched bool  // another protocol follows, as the request said
}

// interim says whether another response to the same request follows.
func (r response) interim() bool { return r.status/100 == 1 }

// parseResponse reads the head of the response to what was asked. What it does not understand for certain lasts until
// the server closes: that is always safe, since no request is let through after it.
func parseResponse(head []byte, to asked) response {
	opaque := response{length: untilEnd}
	line, rest, _ := strings.Cut(string(head), "\r\n")
	version, rest1, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest1, " ")
	status, err := strconv.Atoi(code)
	if err != nil || len(code) != 3 || status < 100 || version != "HTTP/1.1" && version != "HTTP/1.0" {
		return opaque
	}
	f, err := parseFields(rest)
	if err != nil {
		return opaque
	}
	r := response{status: status, length: untilEnd}
	lengths, encodings := f.all("content-length"), f.all("transfer-encoding")
	switch {
	case status == 101:
		r.switched = to.offers != nil && offered(to.offers, f)
	case to.method == "CONNECT" && status/100 == 2:
		r.switched = true // whatever length it has (RFC 9110, section 9.3.6)
	case r.interim(), status == 204, status == 304, to.method == "HEAD":
		r.length = 0
	case len(lengths) == 1 && len(encodings) == 0:
		if n, ok := parseLength(lengths[0]); ok {
			r.length = n
		}
	case len(encodings) == 1 && len(lengths) == 0 && version == "HTTP/1.1" && strings.EqualFold(encodings[0], "chunked"):
		r.length = chunked
	}
	return r
}
