package grant

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/policy"
)

func mustPut(t *testing.T, b *Book, kind Kind, target string, life time.Duration) (Grant, []Grant) {
	t.Helper()
	g, replaced, err := b.Put(Grant{Kind: kind, Target: target}, life, noon)
	if err != nil {
		t.Fatal(err)
	}
	return g, replaced
}

func filesOf(b Book) (out []string) {
	for _, f := range b.Over(&policy.Bundle{Files: []policy.File{{Name: "allowlist.txt"}}}).Files {
		out = append(out, f.Name+" "+strings.TrimSpace(string(f.Data)))
	}
	return out
}

func TestGrantBook(t *testing.T) {
	var b Book
	mustPut(t, &b, Allow, "a.example", time.Minute)
	mustPut(t, &b, Deny, "b.example", 0)
	before := b.Clone()
	if _, replaced := mustPut(t, &b, Deny, "a.example", time.Hour); len(replaced) != 1 || replaced[0].Number != 1 {
		t.Errorf("replaced %+v", replaced)
	}
	if got, want := filesOf(b), []string{"allowlist.txt ", "grant-2 !b.example", "grant-3 !a.example"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := filesOf(before), []string{"allowlist.txt ", "grant-1 a.example", "grant-2 !b.example"}; !slices.Equal(got, want) {
		t.Errorf("a clone has %q, want %q", got, want)
	}
	// The flags of a target make it no other target.
	if _, replaced := mustPut(t, &b, Allow, "a.example private", time.Hour); len(replaced) != 1 || replaced[0].Number != 3 {
		t.Errorf("replaced %+v", replaced)
	}
	if over := b.Expire(noon.Add(time.Hour - 1)); len(over) != 0 {
		t.Errorf("%+v are over too early", over)
	}
	if over := b.Expire(noon.Add(time.Hour)); len(over) != 1 || over[0].Number != 4 || len(b.List) != 1 {
		t.Errorf("%+v are over, %+v is left", over, b.List)
	}
	if over := b.Expire(noon.Add(1000 * time.Hour)); len(over) != 0 {
		t.Errorf("%+v ended by themselves", over)
	}
	if _, err := b.End(4, Decision{}); err == nil {
		t.Error("what is over can be ended")
	}
	if g, err := b.End(2, Decision{}); err != nil || g.Target != "b.example" || len(b.List) != 0 {
		t.Errorf("ended %+v, %v", g, err)
	}
	if g, _ := mustPut(t, &b, Allow, "c.example", time.Minute); g.Number != 5 {
		t.Errorf("number %d is used twice", g.Number)
	}
}

func TestGrantBookIsBounded(t *testing.T) {
	var b Book
	for i := range maxGrants {
		mustPut(t, &b, Allow, fmt.Sprintf("n%d.example", i), time.Minute)
	}
	if _, _, err := b.Put(Grant{Kind: Allow, Target: "one.more.example"}, time.Minute, noon); err == nil {
		t.Error("no bound")
	}
	// What replaces another one takes its place.
	mustPut(t, &b, Deny, "n7.example", 0)
}

func TestRequests(t *testing.T) {
	var b Book
	for i := range 3 {
		g, isNew, err := b.Request(Grant{Target: "a.example", UID: 1000}, noon)
		if err != nil || g.Number != 1 || g.Asked != i+1 || isNew != (i == 0) {
			t.Errorf("request %d: %+v, %v, %v", i, g, isNew, err)
		}
	}
	if got := filesOf(b); len(got) != 1 {
		t.Errorf("a request is in force: %q", got)
	}
	for i := range MaxRequests - 1 {
		if _, _, err := b.Request(Grant{Target: fmt.Sprintf("n%d.example", i)}, noon); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := b.Request(Grant{Target: "one.more.example"}, noon); !errors.Is(err, errTooMany) {
		t.Errorf("no bound: %v", err)
	}
	// They take no place of a person's.
	mustPut(t, &b, Allow, "x.example", time.Minute)
	if _, _, err := b.Put(Grant{Number: 1, Kind: Allow, Target: "b.example"}, time.Minute, noon); err == nil {
		t.Error("request 1 was granted as something else")
	}
	if _, _, err := b.Put(Grant{Number: 99, Kind: Allow, Target: "a.example"}, time.Minute, noon); err == nil {
		t.Error("a request that nobody made was granted")
	}
	g, _, err := b.Put(Grant{Number: 1, Kind: Allow, Target: "a.example"}, time.Minute, noon)
	if err != nil || g.Number != 1 || g.Kind != Allow {
		t.Errorf("got %+v, %v", g, err)
	}
	if over := b.Expire(noon.Add(RequestLife)); len(over) != MaxRequests+1 {
		t.Errorf("%d are over, %d are left", len(over), len(b.List))
	}
}

// Grants about different requests to a name stand beside each other, and a word about all of it takes their place.
func TestGrantsOfRequests(t *testing.T) {
	var b Book
	for _, step := range []struct {
		kind     Kind
		target   string
		replaced []uint32
	}{
		{Allow, "a.example GET /x", nil},
		{Allow, "a.example POST /x", nil},
		{Allow, "a.example GET /x private", []uint32{1}},
		{Deny, "a.example GET /x", []uint32{3}},
		{Allow, "a.example read", nil},
		{Allow, "a.example:8443 GET /x", nil},
		{Deny, "a.example", []uint32{2, 4, 5}},
		{Allow, "a.example GET /y", []uint32{7}},
	} {
		_, replaced := mustPut(t, &b, step.kind, step.target, time.Minute)
		var got []uint32
		for _, g := range replaced {
			got = append(got, g.Number)
		}
		if !slices.Equal(got, step.replaced) {
			t.Errorf("%s %s takes the place of %v, not of %v", step.kind, step.target, got, step.replaced)
		}
	}
}

func TestTargetsOfRequests(t *testing.T) {
	for target, want := range map[string]string{
		"a.example  GET,HEAD   /x  private": "a.example GET,HEAD /x private", "a.example observe": "a.example observe", "*.a.example read max_upload=1024": "*.a.example read max_upload=1KiB",
	} {
		if line, err := ParseLine(Allow, target); err != nil || line.Text != want {
			t.Errorf("%s: %q, %v", target, line.Text, err)
		}
	}
	if line, err := ParseLine(Deny, "a.example DELETE /x"); err != nil || line.Text != "a.example DELETE /x" {
		t.Errorf("%q, %v", line.Text, err)
	}
	if line, err := ParseLine(Allow, "a.example GET"); err == nil {
		t.Errorf("%q", line.Text)
	}
}
