package main

import (
	"strings"
	"testing"
)

// TestReplaced: a section that is measured by itself takes the place of its own figures, or of none, and says what it was
// measured on.
func TestReplaced(t *testing.T) {
	figures := func(machine string, titles ...string) *report {
		r := &report{machine: []string{machine}}
		for _, title := range titles {
			r.heading("%s", title)
			r.figure("figure", "measured on "+machine, "")
		}
		return r
	}
	whole := figures("the first", "One", "Two").markdown()
	page, err := figures("another", "Two").replaced(whole)
	if err != nil {
		t.Fatal(err)
	}
	if page, err = figures("a third", "Three").replaced(page); err != nil {
		t.Fatal(err)
	}
	var at int
	for _, part := range []string{docHead, "## One\n", "on the first |", "\n## Two\n", "on another |", "itself:\n\n- another\n",
		"\n## Three\n", "on a third |", "- a third\n", "\n## The machine\n\n- the first\n", docTail} {
		i := strings.Index(page[at:], part)
		if i < 0 {
			t.Fatalf("%q is missing or out of place", part)
		}
		at += i + len(part)
	}
	if at != len(page) || strings.Count(page, "\n## Two\n") != 1 || strings.Count(page, "measured on the first") != 1 {
		t.Error("something is there twice, or behind the end")
	}
	if _, err := figures("another", "Two").replaced("nothing of the kind"); err == nil {
		t.Error("any text is a page")
	}
}
