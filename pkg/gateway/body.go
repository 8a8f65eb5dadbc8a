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

// forwardBody passes a body on, bytes of known length or chunks. It passes on
// nothing that it has not understood, so that after a refusal src holds the
// first byte that was not.
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

// forwardChunks passes a chunked body on (RFC 9112, section 7.1), to the end of
// its trailer.
func forwardChunks(src *source, dst io.Writer) error {
	extensions := 0
	for {
		n, err := readLine(src, 0, maxChunkLine, refusedChunk)
		if err != nil {
			return err
		}
		size, ext, err := chunkLine(src.held()[:n-2])
		if err != nil {
			return err
		}
		if extensions += ext; extensions > maxExtensions {
			return refusedChunk
		}
		if err := src.forward(dst, int64(n)); err != nil {
			return err
		}
		if size == 0 {
			return forwardTrailer(src, dst)
		}
		if err := ended(src.forward(dst, size), true); err != nil {
			return err
		}
		if n, err = readLine(src, 0, 2, refusedChunk); err != nil {
			return err
		}
		if err := src.forward(dst, int64(n)); err != nil {
			return err
		}
	}
}

// chunkLine returns the size that a chunk begins with, and how many bytes of
// extensions follow it. Space around the size is not accepted: some readers
// see another size then. Nor is any in the extensions, where RFC 9112 has it for old
// senders only: a server that knows no chunks would see a request line.
func chunkLine(line []byte) (size int64, extensions int, err error) {
	digits, ext, _ := strings.Cut(string(line), ";")
	size, err = strconv.ParseInt(digits, 16, 64)
	foreign := func(r rune) bool { return !isTokens(string(r)) && r != ';' && r != '=' && r != '"' }
	if err != nil || len(digits) > 15 || strings.Trim(digits, "0123456789abcdefABCDEF") != "" || strings.ContainsFunc(ext, foreign) {
		return 0, 0, refusedChunk
	}
	return size, len(line) - len(digits), nil
}

// forwardTrailer passes the lines on that end a chunked body.
func forwardTrailer(src *source, dst io.Writer) error {
	for left := maxTrailer; ; {
		n, err := readLine(src, 0, left, refusedTrailer)
		if err != nil {
			return err
		}
		left -= n
		if n > 2 {
			var f fields
			if f.add(string(src.held()[:n-2])) != nil || f.frames() {
				return refusedTrailer
			}
		}
		if err := src.forward(dst, int64(n)); err != nil || n == 2 {
			return err
		}
	}
}

// frames says whether the first of f is a field that would say where a message ends or
// whom it is for, which a trailer may not (RFC 9110, section 6.5.1).
func (f fields) frames() bool {
	return slices.Contains([]string{"host", "content-length", "transfer-encoding", "expect", "connection", "upgrade", "http2-settings"}, f[0].name)
}
