package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/policy"
)

func mustPut(t *testing.T, b *grantBook, kind grantKind, target string, life time.Duration) (grant, []grant) {
	t.Helper()
	g, replaced, err := b.put(kind, asker{target: target}, 0, life, noon)
	if err != nil {
		t.Fatal(err)
	}
	return g, replaced
}

func filesOf(b grantBook) (out []string) {
	for _, f := range b.over(&policy.Bundle{Files: []policy.File{{Name: "allowlist.txt"}}}).Files {
		out = append(out, f.Name+" "+strings.TrimSpace(string(f.Data)))
	}
	return out
}

func TestGrantBook(t *testing.T) {
	var b grantBook
	mustPut(t, &b, grantAllow, "a.example", time.Minute)
	mustPut(t, &b, grantDeny, "b.example", 0)
	before := b.clone()
	if _, replaced := mustPut(t, &b, grantDeny, "a.example", time.Hour); len(replaced) != 1 || replaced[0].Number != 1 {
		t.Errorf("replaced %+v", replaced)
	}
	if got, want := filesOf(b), []string{"allowlist.txt ", "grant-2 !b.example", "grant-3 !a.example"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := filesOf(before), []string{"allowlist.txt ", "grant-1 a.example", "grant-2 !b.example"}; !slices.Equal(got, want) {
		t.Errorf("a clone has %q, want %q", got, want)
	}
	// The flags of a target make it no other target.
	if _, replaced := mustPut(t, &b, grantAllow, "a.example private", time.Hour); len(replaced) != 1 || replaced[0].Number != 3 {
		t.Errorf("replaced %+v", replaced)
	}
	if over := b.expire(noon.Add(time.Hour - 1)); len(over) != 0 {
		t.Errorf("%+v are over too early", over)
	}
	if over := b.expire(noon.Add(time.Hour)); len(over) != 1 || over[0].Number != 4 || len(b.list) != 1 {
		t.Errorf("%+v are over, %+v is left", over, b.list)
	}
	if over := b.expire(noon.Add(1000 * time.Hour)); len(over) != 0 {
		t.Errorf("%+v ended by themselves", over)
	}
	if _, err := b.end(4, decision{}); err == nil {
		t.Error("what is over can be ended")
	}
	if g, err := b.end(2, decision{}); err != nil || g.Target != "b.example" || len(b.list) != 0 {
		t.Errorf("ended %+v, %v", g, err)
	}
	if g, _ := mustPut(t, &b, grantAllow, "c.example", time.Minute); g.Number != 5 {
		t.Errorf("number %d is used twice", g.Number)
	}
}

func TestGrantBookIsBounded(t *testing.T) {
	var b grantBook
	for i := range maxGrants {
		mustPut(t, &b, grantAllow, fmt.Sprintf("n%d.example", i), time.Minute)
	}
	if _, _, err := b.put(grantAllow, asker{target: "one.more.example"}, 0, time.Minute, noon); err == nil {
		t.Error("no bound")
	}
	// What replaces another one takes its place.
	mustPut(t, &b, grantDeny, "n7.example", 0)
}

func TestRequests(t *testing.T) {
	var b grantBook
	for i := range 3 {
		g, isNew, err := b.request(asker{target: "a.example", uid: 1000}, noon)
		if err != nil || g.Number != 1 || g.Asked != i+1 || isNew != (i == 0) {
			t.Errorf("request %d: %+v, %v, %v", i, g, isNew, err)
		}
	}
	if got := filesOf(b); len(got) != 1 {
		t.Errorf("a request is in force: %q", got)
	}
	for i := range maxRequests - 1 {
		if _, _, err := b.request(asker{target: fmt.Sprintf("n%d.example", i)}, noon); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := b.request(asker{target: "one.more.example"}, noon); !errors.Is(err, errTooManyRequests) {
		t.Errorf("no bound: %v", err)
	}
	// They take no place of a person's.
	mustPut(t, &b, grantAllow, "x.example", time.Minute)
	if _, _, err := b.put(grantAllow, asker{target: "b.example"}, 1, time.Minute, noon); err == nil {
		t.Error("request 1 was granted as something else")
	}
	if _, _, err := b.put(grantAllow, asker{target: "a.example"}, 99, time.Minute, noon); err == nil {
		t.Error("a request that nobody made was granted")
	}
	g, _, err := b.put(grantAllow, asker{target: "a.example"}, 1, time.Minute, noon)
	if err != nil || g.Number != 1 || g.Kind != grantAllow {
		t.Errorf("got %+v, %v", g, err)
	}
	if over := b.expire(noon.Add(requestLife)); len(over) != maxRequests+1 {
		t.Errorf("%d are over, %d are left", len(over), len(b.list))
	}
}
