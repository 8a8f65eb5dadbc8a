package gateway

import (
	"slices"
	"strconv"
	"strings"
)

// request is what the gate has to know about an HTTP request.
type request struct {
	method string
	host   string    // as it came, without the port
	length int64     // of the body; chunked if it has no length
	json   bool      // the client would rather read JSON
	expect bool      // the client waits for 100 Continue before it sends the body
	target authority // of a CONNECT
	offers []string  // protocols to switch to, in lower case
}

// chunked is the length of a body whose chunks say how long they are.
const chunked = -1

// last says whether nothing may follow r on its connection. A server may overlook a body, and read it as the next
// request: for a method that it does not know, a path where it expects none, or an answer that it gives early.
func (r *request) last() bool { return r.length != 0 }

// switches says whether a server that agrees will speak another protocol.
func (r *request) switches() bool { return r.offers != nil || r.target != authority{} }

// droppable says whether the offers may be left out without the client's
// noticing: one who offers HTTP/2 asks for nothing that HTTP/1.1 has not.
func (r *request) droppable() bool { return len(r.offers) == 1 && r.offers[0] == "h2c" }

// head returns a head as it is passed on: without Expect, which the gate answers, and without forbidden offers.
func (r *request) head(head []byte) []byte {
	without := []string{"expect"}
	if r.offers == nil {
		without = append(without, "upgrade", "http2-settings")
	}
	return rewrite(head, r.last(), without...)
}

// parseRequest reads a head as readHead delimits it, for a server on port. The
// request is never nil: beside an error it has what was understood.
func parseRequest(head []byte, port uint16) (*request, error) {
	r := &request{}
	line, rest, _ := strings.Cut(string(head), "\r\n")
	minor, target, err := r.requestLine(line)
	if err != nil {
		return r, err
	}
	f, err := parseFields(rest)
	if err != nil {
		return r, err
	}
	if accept := f.all("accept"); accept != nil {
		r.json = strings.Contains(strings.ToLower(accept[len(accept)-1]), "application/json")
	}
	if r.method == "CONNECT" {
		err = r.connect(f.all("host"), target, minor)
	} else {
		err = r.authority(f.all("host"), target, port)
	}
	if err == nil {
		err = r.framing(f, minor)
	}
	if err == nil {
		err = r.upgrade(f, minor)
	}
	return r, err
}

func (r *request) requestLine(line string) (minor int, target string, err error) {
	method, rest, _ := strings.Cut(line, " ")
	target, version, _ := strings.Cut(rest, " ")
	switch {
	case !isTokens(method) || target == "":
		return 0, "", refusedRequestLine
	case line == "PRI * HTTP/2.0":
		return 0, "", refusedHTTP2
	case version != "HTTP/1.1" && version != "HTTP/1.0":
		return 0, "", refusedNotHTTP
	case strings.EqualFold(method, "CONNECT") && method != "CONNECT":
		return 0, "", refusedRequestLine
	// A fragment is never sent; where one is, readers differ about the host.
	case strings.ContainsFunc(target, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '#' }):
		return 0, "", refusedTarget
	}
	r.method = strings.Clone(method)
	return int(version[7] - '0'), target, nil
}

// authority finds the one host that the request is for (RFC 9112, section 3.2).
func (r *request) authority(hosts []string, target string, port uint16) error {
	if len(hosts) > 1 {
		return refusedManyHosts
	}
	host, err := splitHost(strings.Join(hosts, ""), port) // none is an empty one
	r.host = strings.Clone(host)                          // the head is not to be kept for its sake
	switch {
	case err != nil:
		return err
	case target[0] == '/', target == "*" && r.method == "OPTIONS":
		return nil
	case len(target) < 7 || !strings.EqualFold(target[:7], "http://"):
		return refusedTarget
	}
	authority, _, _ := strings.Cut(target[7:], "/")
	named, err := splitHost(authority, port)
	if err != nil {
		return err
	}
	a, _ := canonical(named)
	if b, _ := canonical(host); a != b {
		return refusedHostConflict
	}
	return nil
}

const hostBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"

// splitHost returns the name of HOST or HOST:PORT, where the port is none but port.
func splitHost(s string, port uint16) (string, error) {
	host, digits, hasPort := strings.Cut(s, ":")
	switch {
	case strings.Trim(host, hostBytes) != "":
		return s, refusedName
	case host == "":
		return s, refusedNoHost
	case hasPort && digits != strconv.Itoa(int(port)):
		return host, refusedHostPort
	}
	return host, nil
}

// framing finds out how long the body is (RFC 9112, section 6.3), and refuses what readers could disagree about.
func (r *request) framing(f fields, minor int) error {
	lengths, encodings, expects := f.all("content-length"), f.all("transfer-encoding"), f.all("expect")
	switch {
	case len(lengths) > 0 && len(encodings) > 0:
		return refusedBothLengths
	case len(lengths) > 1:
		return refusedLength
	case len(encodings) > 1:
		return refusedEncoding
	case len(expects) > 1 || len(expects) == 1 && !strings.EqualFold(expects[0], "100-continue"):
		return refusedExpect
	case slices.ContainsFunc([]string{"host", "content-length", "transfer-encoding", "expect", "connection"}, f.option):
		return refusedConnection
	}
	if len(encodings) == 1 {
		if encodings[0] != "chunked" || minor == 0 {
			return refusedEncoding
		}
		r.length = chunked
	}
	if len(lengths) == 1 {
		n, ok := parseLength(lengths[0])
		if !ok {
			return refusedLength
		}
		r.length = n
	}
	// Servers are known to overlook a body that is unusual, and to read it as the next request. Elasticsearch's clients
	// send one with a GET: as any other with a body, it is the last of its connection.
	if r.length != 0 && slices.Contains([]string{"HEAD", "TRACE", "CONNECT"}, strings.ToUpper(r.method)) {
		return refusedBody
	}
	r.expect = len(expects) == 1 && minor == 1 && r.length != 0
	return nil
}

func parseLength(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && len(s) <= 18 && strings.Trim(s, "0123456789") == ""
}
