package gateway

import (
	"slices"
	"strings"
)

// A server may overlook the body of a request, and read it as the next one: for a
// method that it does not know, a path where it expects none, or an answer that it
// gives early. What it does can't be seen from here. So a request with a body is the
// last one on its connection: both sides are told so, and nothing else is passed on.

// last says whether nothing may follow r on its connection.
func (r *request) last() bool { return r.length != 0 }

// closing returns a message head that says close (RFC 9112, section 9.6) in the only
// Connection field that it has: of several, some readers see the first one.
func closing(head []byte) []byte {
	var b strings.Builder
	options := []string{"close"}
	for i, line := range strings.Split(strings.TrimSuffix(string(head), "\r\n\r\n"), "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		switch {
		case i > 0 && strings.EqualFold(name, "keep-alive"):
		case i > 0 && strings.EqualFold(name, "connection"):
			for _, m := range members(value) {
				if m = strings.ToLower(m); m != "" && m != "keep-alive" && !slices.Contains(options, m) {
					options = append(options, m)
				}
			}
		default:
			b.WriteString(line + "\r\n")
		}
	}
	b.WriteString("Connection: " + strings.Join(options, ", ") + "\r\n\r\n")
	return []byte(b.String())
}
