package inspect

import (
	"slices"
	"strings"
	"testing"
)

// TestExplainPort: a port of this container that is published and not let in is
// told, since whoever connects to it only waits.
func TestExplainPort(t *testing.T) {
	for want, tc := range map[string]struct {
		inbound []uint16
		listens []uint16
	}{
		"port 3000 listens and is not in inbound":                {nil, []uint16{3000}},
		"port 3000 listens and is in inbound":                    {[]uint16{3000}, []uint16{3000}},
		"port 3000 is in inbound, and nothing listens on it":     {[]uint16{3000}, nil},
		"port 3000 is not in inbound, and nothing listens on it": {[]uint16{3002}, []uint16{3001}},
	} {
		if r := explainInbound(3000, tc.inbound, tc.listens); r.Reason != want {
			t.Errorf("%q, want %q", r.Reason, want)
		}
	}
	s, err := parseSubject("3000")
	if err != nil || !s.here || s.port.Number != 3000 {
		t.Errorf("%+v, %v", s, err)
	}
	p := wellPatient(t)
	p.listens, p.inbound = []uint16{3000, 8080}, []uint16{8080}
	found := slices.DeleteFunc(examine(p).Findings, func(f finding) bool { return f.Check != "inbound" })
	if len(found) != 1 || found[0].Result != warns || !strings.Contains(found[0].Detail, "port 3000 listens and is not in inbound") {
		t.Errorf("doctor: %+v", found)
	}
}
