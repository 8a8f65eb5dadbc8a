package policy

import (
	"net/netip"
	"strings"
	"testing"

	allowlist "github.com/agent-init/agent-init/allowlist.d"
)

// parse parses one file; a name that does not end in .yaml is a list.
func parse(t testing.TB, name, data string) *Policy {
	t.Helper()
	p, err := Parse(&Bundle{Files: []File{{Name: name, Data: []byte(data)}}}, allowlist.Files)
	if err != nil {
		t.Fatalf("parsing %q: %v", data, err)
	}
	return p
}

// failure returns what Parse says about one file that is wrong.
func failure(t testing.TB, name, data string) string {
	t.Helper()
	_, err := Parse(&Bundle{Files: []File{{Name: name, Data: []byte(data)}}}, allowlist.Files)
	if err == nil {
		t.Fatalf("%q is accepted", data)
	}
	return err.Error()
}

func rules(p *Policy) []string {
	var out []string
	for _, r := range p.rules {
		out = append(out, r.String())
	}
	return out
}

func warnings(p *Policy) string {
	return ErrorList(p.Warnings).Error()
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func tcp(n uint16) Port { return Port{TCP, n} }

func join(list ...string) string { return strings.Join(list, "\n") }
