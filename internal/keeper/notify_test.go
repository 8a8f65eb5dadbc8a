package keeper

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
)

// TestNewsOfRequests: what is booked and what is decided is news once, whoever decides it.
func TestNewsOfRequests(t *testing.T) {
	now := time.Now()
	var b grant.Book
	ask := func(target string) grant.Grant {
		g, _, err := b.Request(grant.Grant{Target: target, Reason: "to build"}, now)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	last := b.Clone()
	expect := func(what string, want ...string) {
		t.Helper()
		got := []string{}
		for _, n := range newsOf(last, b) {
			got = append(got, fmt.Sprintf("%s %s %t", n.Target, n.Outcome, n.decided))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		last = b.Clone()
	}
	first, second := ask("a.test"), ask("b.test")
	expect("two requests", "a.test  false", "b.test  false")
	ask("a.test")
	expect("the same again")
	if _, _, err := b.Put(grant.Grant{Number: first.Number, Kind: grant.Allow, Target: "a.test"}, time.Minute, now); err != nil {
		t.Fatal(err)
	}
	expect("granted", "a.test granted true")
	if _, err := b.End(second.Number, grant.Decision{Time: now}); err != nil {
		t.Fatal(err)
	}
	expect("turned down", "b.test turned down true")
	if _, _, err := b.Put(grant.Grant{Kind: grant.Deny, Target: "z.test"}, 0, now); err != nil {
		t.Fatal(err)
	}
	expect("a denial of something else")
	b.Expire(now.Add(time.Hour))
	expect("the end of a grant")
	ask("c.test")
	b.Expire(now.Add(2 * grant.RequestLife))
	expect("asked and forgotten between two looks", "c.test forgotten true")
}

func TestNoticeOfRequests(t *testing.T) {
	one := grant.Grant{Number: 3, Kind: grant.Request, Target: "a.test"}
	two := grant.Grant{Number: 4, Kind: grant.Request, Target: "b.test", Reason: "to build"}
	for _, c := range []struct {
		waiting []grant.Grant
		want    string
	}{
		{nil, ""},
		{[]grant.Grant{one}, "request 3: a.test"},
		{[]grant.Grant{two}, `request 4: b.test, "to build"`},
		{[]grant.Grant{one, two}, `request 3: a.test (and 1 more)`},
	} {
		if got := noticeOf(c.waiting); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestNotificationText: the line that chat programs show has no link in it that looks like another one, and calls nobody.
// The reason as it was given stands beside it.
func TestNotificationText(t *testing.T) {
	const reason = "see <https://evil.test|the handbook>, [here](https://evil.test), <!channel> @everyone"
	n := requestNews{Grant: grant.Grant{Number: 3, Kind: grant.Request, Target: "@github", Reason: reason}}.notification(1)
	if strings.ContainsAny(n.Text, "<>[]") || strings.Count(n.Text, "@") != 1 || !strings.Contains(n.Text, "https://evil.test|the handbook") {
		t.Errorf("text is %s", n.Text)
	}
	if n.Request.Reason != reason {
		t.Errorf("the reason is %q", n.Request.Reason)
	}
}
