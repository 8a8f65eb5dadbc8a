package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/pkg/policy"
)

type explanation struct {
	Error string `json:"error"`
	Host  string `json:"host,omitempty"`
	Port  uint16 `json:"port"`
	Why   string `json:"reason"`
	Rule  string `json:"rule,omitempty"`           // that decided
	Line  string `json:"allowlist_line,omitempty"` // that would allow it
	Hint  string `json:"hint,omitempty"`
}

func forbidden(no *judged, p *policy.Policy) []byte {
	e := explanation{Error: "refused by agent-init", Host: no.name, Port: no.port, Why: no.Error(), Rule: no.rule.String()}
	e.Line, e.Hint = remedy(no.ruling, p)
	kind, body := "text/plain; charset=utf-8", []byte(e.Error+"\n")
	for _, l := range [][2]string{{"host", printable(e.Host)}, {"why", e.Why}, {"rule", e.Rule}, {"allowlist line", e.Line}, {"hint", e.Hint}} {
		if l[1] != "" {
			body = fmt.Appendf(body, "%s: %s\n", l[0], l[1])
		}
	}
	if no.json {
		// A struct of strings can't fail to marshal.
		body, _ = json.Marshal(e)
		kind, body = "application/json", append(body, '\n')
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 403 Forbidden\r\nContent-Type: %s\r\nContent-Length: %d\r\n", kind, len(body))
	b.WriteString("Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n")
	if no.method != "HEAD" {
		b.Write(body)
	}
	return b.Bytes()
}

// printable quotes what is not plain text: the client chose it.
func printable(s string) string {
	if q := strconv.QuoteToASCII(s); q != `"`+s+`"` {
		return q
	}
	return s
}

// remedy is the line of an allowlist that would allow what r refused, and a hint
// as DNS gives it; none if it was not the policy that refused it.
func remedy(r ruling, p *policy.Policy) (line, hint string) {
	on := policy.Port{Proto: policy.TCP, Number: r.port}
	if a, err := netip.ParseAddr(strings.Trim(r.name, "[]")); err == nil && r.why == refusedByPolicy {
		return p.LineForAddr(a, on), ""
	}
	d, m := p.Decide(r.name, on), p.Lookup(r.name)
	switch {
	case d.Allowed && r.why == refusedUpgrade:
		return m.Name + ":" + strconv.Itoa(int(r.port)) + " upgrade", ""
	case m.Name == "" || d.Allowed || r.why != refusedByPolicy:
		return "", ""
	}
	return p.LineFor(r.name, netip.Addr{}, on), p.Refusal(m.Name, d.Rule)
}
