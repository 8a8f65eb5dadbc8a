package report

import (
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/lab/golden"
	"github.com/agent-init/agent-init/internal/state"
)

// TestUnused holds what is said of lines that nobody has used: neither of denials, nor of what ends by itself, nor of
// what leaves no trace, nor of what is connected just now.
func TestUnused(t *testing.T) {
	r := &Report{Made: noon, Since: noon.Add(-2 * time.Hour), First: noon.Add(-time.Hour),
		Standing: []grant.Grant{{Number: 7, Kind: grant.Allow, Target: "saved.example", Saved: true}, {Number: 9, Kind: grant.Allow, Target: "a.example"}},
		Policy: &Policy{Dir: "/etc/agent-init", More: 3, Entries: []Entry{
			{Rule: "!no.example", Source: "allowlist.txt:1", Deny: true},
			{Rule: "a.example", Source: "allowlist.txt:2", Rules: 1},
			{Rule: "used.example", Source: "allowlist.txt:3", Used: 4},
			{Rule: "open.example", Source: "allowlist.txt:4", Open: 1},
			{Rule: "192.0.2.1:22", Source: "allowlist.txt:5", Traceless: true},
			{Rule: "192.0.2.2:22", Source: "allowlist.txt:6", Traceless: true, Open: 1},
			{Rule: "@github", Source: "allowlist.d/b.txt:1", Rules: 9},
			{Rule: "saved.example", Source: state.SavedFile + ":3", Rules: 1},
			{Rule: "given.example", Source: "AGENT_INIT_ALLOW:1", Rules: 1},
			{Rule: "granted.example", Source: "grant-8:1", Rules: 1},
		}}}
	u := unusedIn(r)
	var b strings.Builder
	if err := u.Write(&b, false); err != nil {
		t.Fatal(err)
	}
	golden.File(t, "unused.golden.txt", []byte(b.String()))
	golden.JSON(t, "unused.golden.json", u)
	b.Reset()
	if err := unusedIn(&Report{Made: noon, Policy: &Policy{}}).Write(&b, false); err != nil || b.String() != "# As far as the log goes back, each entry was used of which that can be told\n" {
		t.Errorf("of nothing it says %q, %v", b.String(), err)
	}
}
