package grant

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// lines says what a file of saved entries has, each as kind, target, time, uid and reason.
func lines(data []byte) (out []string) {
	for _, g := range ReadSaved(data) {
		out = append(out, strings.Join([]string{string(g.Kind), g.Target, g.comment()}, " | "))
	}
	return out
}

// save changes a file as a keeper does, and returns the book that comes of reading it.
func save(t *testing.T, b Book, data []byte, put Grant) (Book, []byte) {
	t.Helper()
	was := b.Clone()
	put.Saved = true
	if _, _, err := b.Put(put, 0, noon); err != nil {
		t.Fatal(err)
	}
	made, gone := b.SavedSince(was)
	data = EditSaved(data, gone, made)
	b.Adopt(ReadSaved(data))
	return b, data
}

func TestSaved(t *testing.T) {
	var b Book
	mustPut(t, &b, Allow, "a.example", time.Minute) // 1
	b, data := save(t, b, nil, Grant{Kind: Allow, Target: "a.example", Reason: "the linter: # 7"})
	if len(b.List) != 1 || b.List[0].Number != 2 || !b.List[0].Saved {
		t.Errorf("%+v", b.List)
	}
	data = append(data, "by.hand.example # a reason of a person's\nnot an entry\n"...)
	b, data = save(t, b, data, Grant{Kind: Deny, Target: "*.b.example", UID: 7})
	b, data = save(t, b, data, Grant{Kind: Allow, Target: "@github"})
	b, data = save(t, b, data, Grant{Kind: Deny, Target: "a.example", Reason: "no more"})
	want := []string{
		"allow | by.hand.example | 0001-01-01T00:00:00Z by uid 0: a reason of a person's",
		"deny | *.b.example | 2026-01-01T12:00:00Z by uid 7",
		"allow | @github | 2026-01-01T12:00:00Z by uid 0",
		"deny | a.example | 2026-01-01T12:00:00Z by uid 0: no more",
	}
	if got := lines(data); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nfrom\n%s", strings.Join(got, "\n"), data)
	}
	if !strings.HasPrefix(string(data), savedHead) || !strings.Contains(string(data), "\nnot an entry\n") {
		t.Errorf("what is no entry is lost:\n%s", data)
	}
	if got := filesOf(b); len(got) != 1 {
		t.Errorf("what was saved is in force twice: %q", got)
	}

	// A grant for a time takes nothing from it, and nobody's numbers change.
	mustPut(t, &b, Deny, "@github", time.Minute)
	before := slices.Clone(b.List)
	b.Adopt(ReadSaved(data))
	for _, g := range before {
		if i := b.find(g.Number); i < 0 || !b.List[i].says(g) {
			t.Errorf("%d was %s %s, and is gone", g.Number, g.Kind, g.Target)
		}
	}
	if b.Expire(noon.Add(time.Hour)); len(b.List) != 4 {
		t.Errorf("%+v are left", b.List)
	}
	was := b.Clone()
	i := slices.IndexFunc(b.List, func(g Grant) bool { return g.Target == "by.hand.example" })
	if _, err := b.End(b.List[i].Number, Decision{}); err != nil {
		t.Fatal(err)
	}
	made, gone := b.SavedSince(was)
	if data = EditSaved(data, gone, made); len(lines(data)) != 3 || strings.Contains(string(data), "by.hand") {
		t.Errorf("what was ended stands in\n%s", data)
	}
}

func TestSavedIsBounded(t *testing.T) {
	var b Book
	var list []Grant
	for i := range maxSaved {
		list = append(list, Grant{Kind: Allow, Target: strings.Repeat("a", 1+i%60) + strings.Repeat(".b", 1+i/60), Saved: true})
	}
	b.Adopt(list)
	if _, _, err := b.Put(Grant{Kind: Allow, Target: "one.more.example", Saved: true}, 0, noon); err == nil {
		t.Error("no bound")
	}
	mustPut(t, &b, Allow, "for.a.time.example", time.Minute) // has a bound of its own
	if n := len(ReadSaved([]byte(strings.Repeat("a.example\n", 2*maxRead)))); n != maxRead {
		t.Errorf("%d entries are listed", n)
	}
}

// FuzzSaved: whatever stands in the file, and whatever reason the agent has given, what is saved is read back as just
// that, and every other line stays.
func FuzzSaved(f *testing.F) {
	f.Add("", "a.example", "why", false)
	f.Add("a.example # 2026-11-23T10:04:05Z by uid 0: x\r\n!b.example", "b.example", "\x1b]0;x\a\u2028*.com", true)
	f.Add("\ufeffa.example\n", "a.example GET,HEAD /x private", "# !a.example\n@github", false)
	f.Add("# \xff\n^a\\.example$", `^a\.example$`, ": by uid 1: ", true)
	f.Fuzz(func(t *testing.T, data, target, reason string, deny bool) {
		kind := Allow
		if deny {
			kind = Deny
		}
		l, err := ParseLine(kind, target)
		if err != nil || strings.Count(data, "\n") >= maxRead {
			return
		}
		made := Grant{Kind: kind, Target: l.Text, Reason: reason, Made: noon, Saved: true}
		before := ReadSaved([]byte(data))
		edited := EditSaved([]byte(data), []Grant{made}, []Grant{made})
		var others []Grant
		for _, g := range before {
			if !g.says(made) {
				others = append(others, g)
			}
		}
		after := ReadSaved(edited)
		if len(after) != len(others)+1 || !after[len(others)].says(made) {
			t.Fatalf("%q: %q was saved as\n%q", data, l.Text, edited)
		}
		for i, g := range others {
			if after[i] != g {
				t.Fatalf("%+v is %+v now, in\n%q", g, after[i], edited)
			}
		}
		if again := EditSaved(edited, []Grant{made}, nil); len(ReadSaved(again)) != len(others) {
			t.Fatalf("it can't be taken out of\n%q", edited)
		}
	})
}

// TestSavedSeat: what was decided at the container's own terminal is told so by the list, and by the file it is saved to.
func TestSavedSeat(t *testing.T) {
	made := Grant{Kind: Allow, Target: "a.example", Reason: "one build", UID: 64903, Seat: true, Made: noon, Saved: true}
	read := ReadSaved(EditSaved(nil, nil, []Grant{made}))
	if len(read) != 1 || !read[0].Seat || read[0].By() != "the terminal" || read[0].Reason != made.Reason || !read[0].Made.Equal(noon) {
		t.Errorf("%+v", read)
	}
	made.Seat = false
	if read = ReadSaved(EditSaved(nil, nil, []Grant{made})); len(read) != 1 || read[0].Seat || read[0].By() != "uid 64903" {
		t.Errorf("%+v", read)
	}
}
