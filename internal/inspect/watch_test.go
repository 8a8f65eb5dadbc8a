package inspect

import (
	"bufio"
	"context"
	"io"
	"regexp"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
)

// TestWatchGrants: each change is one line, once; what was decided before is not told again.
func TestWatchGrants(t *testing.T) {
	p := newPublishing(t, "domains: [ok.test]")
	old := grant.Grant{Number: 1, Kind: grant.Request, Target: "old.test", Made: noon, Outcome: grant.WasForgotten}
	asked := grant.Grant{Number: 2, Kind: grant.Request, Target: "new.test", Reason: "to\u202e build\x1b[2J", Made: noon, UID: 1000}
	allowed := grant.Grant{Number: 2, Kind: grant.Allow, Target: "new.test", Made: noon.Add(time.Minute), Expires: noon.Add(11 * time.Minute)}
	granted := asked
	granted.Outcome, granted.Decided = grant.WasGranted, &grant.Decision{Time: noon.Add(time.Minute), Reason: "one build"}
	p.grants(old, asked)
	from, to := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- watchGrants(ctx, p.Dir, to, WatchOptions{Bell: true}) }()
	lines := bufio.NewReader(from)
	hear := func(want string) {
		t.Helper()
		got, err := lines.ReadString('\n')
		if err != nil || !regexp.MustCompile(`^`+want+`\n$`).MatchString(got) {
			t.Errorf("got %q (%v), want %q", got, err, want)
		}
	}
	const at = `[A-Za-z0-9: -]+  `
	hear("\a" + at + `request 2: new.test: "to\? build\?\[2J"`)
	p.grants(old, allowed, granted)
	hear(at + `2 allowed new.test for 10m by uid 0`)
	hear(at + `request 2, for new.test, was granted: "one build"`)
	p.grants(old, granted)
	hear(at + `2 ended: allow new.test`)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
