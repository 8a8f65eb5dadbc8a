package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/agent-init/agent-init/pkg/policy"
)

// explanation is the body of a 403.
type explanation struct {
	Error string `json:"error"`
	Host  string `json:"host,omitempty"`
	Port  uint16 `json:"port"`
	Why   string `json:"reason"`
	Rule  string `json:"rule,omitempty"`           // that decided
	Line  string `json:"allowlist_line,omitempty"` // that would allow it
}

// forbidden is the whole answer to a request that is refused.
func forbidden(no *refused, p *policy.Policy) []byte {
	e := explanation{Error: "refused by agent-init", Host: no.name, Port: no.port, Why: no.reason, Rule: no.ruling.source(), Line: remedy(no.ruling, p)}
	kind, body := "text/plain; charset=utf-8", e.text()
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

func (e explanation) text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n", e.Error)
	if e.Host != "" {
		fmt.Fprintf(&b, "host: %s\n", printable(e.Host))
	}
	fmt.Fprintf(&b, "why: %s\n", e.Why)
	if e.Rule != "" {
		fmt.Fprintf(&b, "rule: %s\n", e.Rule)
	}
	if e.Line != "" {
		fmt.Fprintf(&b, "allowlist line: %s\n", e.Line)
	}
	return b.Bytes()
}

// printable quotes what is not plain text: the client chose it.
func printable(s string) string {
	q := strconv.QuoteToASCII(s)
	if q == `"`+s+`"` {
		return s
	}
	return q
}

// remedy is the line of an allowlist that would allow what r refused; none if
// no line would.
func remedy(r ruling, p *policy.Policy) string {
	d := p.Decide(r.name, policy.Port{Proto: policy.TCP, Number: r.port})
	m := p.Lookup(r.name)
	port := ":" + strconv.Itoa(int(r.port))
	usual := r.port == webPort || r.port == tlsPort
	switch {
	case d.Allowed && r.reason == refusedUpgrade.Error():
		return m.Name + port + " upgrade"
	case d.Allowed || d.Rule != nil || r.name == "" || r.reason != d.Reason:
		return ""
	case m.Allowed || m.Name != "" && m.Rule == nil && !usual:
		return m.Name + port
	case m.Name != "" && m.Rule == nil:
		return m.Name
	}
	return ""
}
