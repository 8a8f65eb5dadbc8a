package xtables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// xtText returns what iptables and ipset are told of a plan.
func xtText(t *testing.T, p plan.Plan) string {
	t.Helper()
	var b strings.Builder
	for _, s := range partsOfAll(p) {
		fmt.Fprintf(&b, "create %s %s family inet%s maxelem %d", s.name, s.typ, map[plan.Family]string{plan.IPv6: "6"}[s.family], s.max)
		if s.timed {
			fmt.Fprintf(&b, " timeout %d", fallbackTTL)
		}
		b.WriteString("\n")
		for _, x := range s.boxes {
			fmt.Fprintf(&b, "\t%s\n", x)
		}
		if len(s.name) > ipsetNameMax {
			t.Errorf("the name %s is too long", s.name)
		}
	}
	for _, f := range []plan.Family{plan.IPv6, plan.IPv4} {
		tables, err := xtTables(p, f, []uidRange{{0, 1<<32 - 2}})
		must(t, err)
		fmt.Fprintf(&b, "# IPv%d\n%s", f, restoreText(tables, nil, false))
	}
	return b.String()
}
