package judge

import (
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"strings"
)

// packed are the content codings that Unpack reads (RFC 9110, section 8.4.1).
var packed = map[string]bool{"": true, "identity": true, "gzip": true, "deflate": true}

// Unpack reads a body that came in a content coding, which Head has judged. Neither what is read nor what it unpacks to
// may have more than limit bytes. all reads as io.ReadAll does.
func Unpack(
	encoding string, body io.Reader, limit int, all func(io.Reader) ([]byte, error),
) (unpacked []byte, refused *Refusal) {
	body, err := Unpacked(encoding, &io.LimitedReader{R: body, N: int64(limit) + 1})
	var strange *Refusal
	if errors.As(err, &strange) {
		return nil, strange
	}
	if err == nil {
		unpacked, err = all(io.LimitReader(body, int64(limit)+1))
	}
	if len(unpacked) > limit {
		return nil, refuse("size", "the body has more than %d bytes", limit)
	}
	if err != nil {
		return nil, refuse("body", "the body can't be read: %s", quote(err.Error(), 200))
	}
	return unpacked, nil
}

// Unpacked is what a body has inside that came in a content coding.
func Unpacked(encoding string, body io.Reader) (io.Reader, error) {
	switch strings.ToLower(encoding) {
	case "", "identity":
		return body, nil
	case "gzip":
		return gzip.NewReader(body)
	case "deflate":
		return zlib.NewReader(body)
	}
	return nil, refuse("header", "a body compressed by %s is not read", quote(encoding, 64))
}

// Incoming is a body that remembers why it ended before its end.
type Incoming struct {
	From io.Reader
	Err  error
}

func (i *Incoming) Read(b []byte) (int, error) {
	n, err := i.From.Read(b)
	if err != nil && err != io.EOF {
		i.Err = err
	}
	return n, err
}
