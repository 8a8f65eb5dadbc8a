package onward

import (
	"net/http"
	"net/url"
)

// NewRequest is a request without a body, whose path goes on byte for byte. It takes h over, and is nil where a character of
// the path has to be escaped.
func NewRequest(method, scheme, host, path string, h http.Header) *http.Request {
	plain, err := url.PathUnescape(path)
	u := &url.URL{Scheme: scheme, Host: host, Path: plain, RawPath: path}
	if err != nil || u.EscapedPath() != path {
		return nil
	}
	if h["User-Agent"] == nil {
		h["User-Agent"] = []string{""} // else net/http sends one
	}
	return &http.Request{
		Method: method, URL: u, Host: host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}
}
