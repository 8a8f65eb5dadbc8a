package policy

import (
	"slices"
	"strings"
	"testing"
)

// A wildcard for what is in the table is warned about, and so is one for what is above
// it; the table is in order.
func TestStrangers(t *testing.T) {
	var list []string
	eachLine(strangersText, func(_, _ int, name string) { list = append(list, name) })
	if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) || len(list) < 80 {
		t.Error("not in order, or not there")
	}
	for _, name := range list {
		if got, problem := canonical(name); got != name || problem != "" {
			t.Errorf("%s is written as %s %s", name, got, problem)
		}
		if got := warnings(parse(t, "f", "*."+name)); !strings.Contains(got, "anyone can have a name below "+name) {
			t.Errorf("*.%s: %q", name, got)
		}
	}
	for _, name := range []string{"amazonaws.com", "windows.net", "core.windows.net", "googleusercontent.com", "run.app", "github.dev", "app.github.dev",
		"firebaseio.com", "sentry.io", "ingest.sentry.io", "zendesk.com", "slack.com", "wordpress.com", "azure.com", "us-east-1.amazonaws.com"} {
		if got := warnings(parse(t, "f", "*."+name)); !strings.Contains(got, "anyone can have a name below "+name) {
			t.Errorf("*.%s: %q", name, got)
		}
	}
	for _, name := range []string{"example.com", "anthropic.com", "mine.zendesk.com", "debian.org"} {
		if got := warnings(parse(t, "f", "*."+name)); got != "" {
			t.Errorf("*.%s: %s", name, got)
		}
	}
}

// What can't be seen is refused where it stands, in lists and in YAML, allowed and denied.
func TestInvisible(t *testing.T) {
	for _, c := range []string{"\u200b", "\u00ad", "\u2060", "\ufeff", "\u034f", "\ufe0f", "\u202e", "\u180b", "\u061c"} {
		for entry, at := range map[string]string{"a" + c + "b.example": "f:1:2", "!" + c + "ab.example": "f:1:2", "ab.example" + c + ":443": "f:1:11", "*.ab.example private" + c: "f:1:21"} {
			if got := failure(t, "f", entry); !strings.HasPrefix(got, at+": a character that can't be seen (U+") {
				t.Errorf("%q: %s", entry, got)
			}
		}
		if got := failure(t, "f.yaml", "deny:\n- \"a"+c+"b.example\"\n"); !strings.Contains(got, "can't be seen") && !strings.Contains(got, "not valid YAML") {
			t.Errorf("%q in YAML: %s", c, got)
		}
	}
	for _, entry := range []string{"bücher.example", "名前.example", "نامه\u200cای.example"} {
		parse(t, "f", entry)
	}
}
