package gateway

import (
	"strconv"
	"strings"
)

// response says where an HTTP response ends (RFC 9112, section 6.3).
type response struct {
	status   int
	length   int64 // of the body; chunked, or untilEnd
	switched bool  // another protocol follows, as the request said
}

// interim says whether another response to the same request follows.
func (r response) interim() bool { return r.status/100 == 1 }

// parseResponse reads the head of the response to what was asked. What it does not
// understand for certain lasts until the server closes: that is always safe, since no
// request is let through after it.
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
