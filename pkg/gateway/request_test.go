package gateway

import (
	"strings"
	"testing"
)

// TestHTTPShapes has requests that are refused, and their look-alikes that are
// not. E48 to E52.
func TestHTTPShapes(t *testing.T) {
	const get, host = "GET / HTTP/1.1\r\n", "Host: ok.test\r\n"
	post := "POST / HTTP/1.1\r\n" + host
	for _, tt := range []struct {
		head string
		err  error
	}{
		{get + host + "\r\n", nil},
		{get + "hOsT:\tok.test \r\n\r\n", nil},
		{get + "Host: ok.test:80\r\n\r\n", nil},
		{"GET http://ok.test/x HTTP/1.1\r\n" + host + "\r\n", nil},
		{"GET HTTP://OK.TEST:80 HTTP/1.1\r\n" + host + "\r\n", nil},
		{"OPTIONS * HTTP/1.1\r\n" + host + "\r\n", nil},
		{"GET / HTTP/1.0\r\n" + host + "\r\n", nil},
		{"GET //evil.test/ HTTP/1.1\r\n" + host + "\r\n", nil},
		{get + host + "Connection: keep-alive, TE\r\n\r\n", nil},
		{get + host + "Content-Length: 0\r\n\r\n", nil},
		{post + "Content-Length: 5\r\n\r\n", nil},
		{post + "Transfer-Encoding: chunked\r\n\r\n", nil},
		{post + "Expect: 100-Continue\r\nContent-Length: 5\r\n\r\n", nil},

		{get + "\r\n", refusedNoHost},
		{get + "Host:\r\n\r\n", refusedNoHost},
		{get + "Host: :80\r\n\r\n", refusedNoHost},
		{get + host + "Host: evil.test\r\n\r\n", refusedManyHosts},
		{get + host + host + "\r\n", refusedManyHosts},
		{get + "Host: ok.test, evil.test\r\n\r\n", refusedName},
		{get + "Host: ok.test evil.test\r\n\r\n", refusedName},
		{get + "Host: user@ok.test\r\n\r\n", refusedName},
		{get + "Host: ok.test:25\r\n\r\n", refusedHostPort},
		{get + "Host: ok.test:\r\n\r\n", refusedHostPort},
		{get + "Host: ok.test:080\r\n\r\n", refusedHostPort},
		{get + "Host: ok.test:80:80\r\n\r\n", refusedHostPort},
		{get + "Host: [2001:db8::1]\r\n\r\n", refusedName},
		{get + "Host: [fe80::1%25eth0]:80\r\n\r\n", refusedName},
		{get + "Host: ok.test/evil\r\n\r\n", refusedName},
		{get + "Host : ok.test\r\n\r\n", refusedField},
		{get + " Host: ok.test\r\n\r\n", refusedFold},
		{get + host + "X: a\r\n b\r\n\r\n", refusedFold},
		{get + host + "X: a\r\n\tHost: evil.test\r\n\r\n", refusedFold},
		{get + host + "X\r\n\r\n", refusedField},
		{get + host + ": x\r\n\r\n", refusedField},
		{get + host + "X y: z\r\n\r\n", refusedField},
		{get + host + "X: \x01\r\n\r\n", refusedControl},
		{get + host + "X: \x00\r\n\r\n", refusedControl},
		{get + host + "X: a\nHost: evil.test\r\n\r\n", refusedLineEnd},
		{get + host + "X: a\rHost: evil.test\r\n\r\n", refusedLineEnd},
		{"GET / HTTP/1.1\nHost: ok.test\n\n", refusedLineEnd},
		{"\r\n" + get + host + "\r\n", refusedNotHTTP},
		{"\x16\x03\x01", refusedNotHTTP},
		{"GET / HTTP/1.2\r\n" + host + "\r\n", refusedNotHTTP},
		{"GET / HTTP/2.0\r\n" + host + "\r\n", refusedNotHTTP},
		{"GET /\r\n" + host + "\r\n", refusedNotHTTP},
		{"GET  / HTTP/1.1\r\n" + host + "\r\n", refusedRequestLine},
		{"GET / HTTP/1.1 \r\n" + host + "\r\n", refusedNotHTTP},
		{"GET / x HTTP/1.1\r\n" + host + "\r\n", refusedNotHTTP},
		{"GET\t/ HTTP/1.1\r\n" + host + "\r\n", refusedRequestLine},
		{"PRI * HTTP/2.0\r\n\r\n", refusedHTTP2},
		{"CONNECT ok.test:25 HTTP/1.1\r\n" + host + "\r\n", refusedConnect},
		{"CONNECT ok.test:80 HTTP/1.1\r\n" + host + "\r\n", refusedConnect},
		{"GET http://evil.test/ HTTP/1.1\r\n" + host + "\r\n", refusedHostConflict},
		{"GET http://ok.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", refusedHostConflict},
		{"GET http://ok.test:81/ HTTP/1.1\r\n" + host + "\r\n", refusedHostPort},
		{"GET http://ok.test@evil.test/ HTTP/1.1\r\n" + host + "\r\n", refusedName},
		{"GET http://ok.test:80@evil.test/ HTTP/1.1\r\n" + host + "\r\n", refusedHostPort},
		{"GET http://ok.test#@evil.test/ HTTP/1.1\r\n" + host + "\r\n", refusedTarget},
		{"GET http://ok.test?@evil.test/ HTTP/1.1\r\n" + host + "\r\n", refusedName},
		{"GET http://ok.test\\@evil.test/ HTTP/1.1\r\n" + host + "\r\n", refusedName},
		{"GET https://ok.test/ HTTP/1.1\r\n" + host + "\r\n", refusedTarget},
		{"GET ok.test:80 HTTP/1.1\r\n" + host + "\r\n", refusedTarget},
		{"GET * HTTP/1.1\r\n" + host + "\r\n", refusedTarget},
		{"GET /\x7f HTTP/1.1\r\n" + host + "\r\n", refusedTarget},
		{get + host + "Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n", refusedUpgrade},
		{get + host + "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: x\r\n\r\n", refusedUpgrade},
		{get + host + "Connection: upgrade\r\n\r\n", refusedUpgrade},
		{post + "Content-Length: 5\r\nConnection: close, Content-Length\r\n\r\n", refusedConnection},
		{get + host + "Connection: host\r\n\r\n", refusedConnection},
		{post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", refusedBothLengths},
		{post + "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", refusedBothLengths},
		{post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", refusedLength},
		{post + "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", refusedLength},
		{post + "Content-Length: 5, 5\r\n\r\n", refusedLength},
		{post + "Content-Length: +5\r\n\r\n", refusedLength},
		{post + "Content-Length: -1\r\n\r\n", refusedLength},
		{post + "Content-Length: 0x5\r\n\r\n", refusedLength},
		{post + "Content-Length:\r\n\r\n", refusedLength},
		{post + "Content-Length: 9999999999999999999\r\n\r\n", refusedLength},
		{post + "Transfer-Encoding: Chunked\r\n\r\n", refusedEncoding},
		{post + "Transfer-Encoding: gzip, chunked\r\n\r\n", refusedEncoding},
		{post + "Transfer-Encoding: xchunked\r\n\r\n", refusedEncoding},
		{post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", refusedEncoding},
		{post + "Transfer-Encoding: \x0bchunked\r\n\r\n", refusedControl},
		{post + "Transfer-Encoding : chunked\r\n\r\n", refusedField},
		{"POST / HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n", refusedEncoding},
		{post + "Expect: 200-ok\r\nContent-Length: 5\r\n\r\n", refusedExpect},
		{get + host + "Content-Length: 5\r\n\r\n", refusedBody},
		{"HEAD / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n", refusedBody},
		{get + host + "X: " + strings.Repeat("a", bufferSize) + "\r\n\r\n", refusedHeadSize},
	} {
		src := sourceOf([]byte(tt.head))
		n, err := readHead(src, nil)
		if err == nil {
			_, err = parseRequest(src.held()[:n], 80)
		}
		if err != tt.err {
			t.Errorf("%.120q: %v, want %v", tt.head, err, tt.err)
		}
	}
}
