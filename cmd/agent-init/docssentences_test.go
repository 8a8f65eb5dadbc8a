package main

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// How many words the sentences of a page have.
const (
	medianWords  = 20
	longWords    = 25 // of nine sentences of ten
	longestWords = 35

	errorWords   = 22 // of a cause, and of a remedy
	summaryWords = 14 // of a command
	usageWords   = 24 // of a flag
)

var (
	comment     = regexp.MustCompile(`(?s)<!--.*?-->`)
	linkTarget  = regexp.MustCompile(`\]\([^)]*\)`)
	listItem    = regexp.MustCompile(`^(?:[-*]|\d+\.) +`)
	notProse    = regexp.MustCompile(`^(?:#|\||<|$)`)
	sentenceEnd = regexp.MustCompile(`[^.][^\s.][.!?]["”)*]* `) // and not that of "e.g. this"
	aWord       = regexp.MustCompile(`[\p{L}\p{N}]`)
)

// sentences are those of a page's prose. Headings, tables and code are none. An item of
// a list begins one. Code within prose counts as a word, however long it is.
func sentences(p page) []string {
	var found []string
	var text strings.Builder
	flush := func() {
		rest := linkTarget.ReplaceAllString(span.ReplaceAllString(text.String(), "Code"), "]")
		for text.Reset(); ; {
			end := sentenceEnd.FindStringIndex(rest)
			if end == nil {
				break
			}
			found, rest = append(found, strings.TrimSpace(rest[:end[1]])), rest[end[1]:]
		}
		if rest = strings.TrimSpace(rest); rest != "" {
			found = append(found, rest)
		}
	}
	for line := range strings.Lines(comment.ReplaceAllString(p.prose, "")) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "> ")
		if notProse.MatchString(line) {
			flush()
			continue
		}
		if item := listItem.FindString(line); item != "" {
			flush()
			line = line[len(item):]
		}
		text.WriteString(line + " ")
	}
	flush()
	return found
}

// words counts those of a sentence. A dash is none.
func words(sentence string) (n int) {
	for w := range strings.FieldsSeq(sentence) {
		if aWord.MatchString(w) {
			n++
		}
	}
	return n
}

// wordy says what of a page's sentences is too long. Of a few sentences no median is taken.
func wordy(p page) (found []string) {
	var counts []int
	for _, s := range sentences(p) {
		n := words(s)
		if n > longestWords {
			found = append(found, fmt.Sprintf("%d words: %s", n, s))
		}
		counts = append(counts, n)
	}
	if len(counts) < 5 {
		return found
	}
	slices.Sort(counts)
	if m := counts[len(counts)/2]; m > medianWords {
		found = append(found, fmt.Sprintf("the median sentence has %d words", m))
	}
	if m := counts[len(counts)*9/10]; m > longWords {
		found = append(found, fmt.Sprintf("one sentence of ten has %d words or more", m))
	}
	return found
}

// TestDocsSentences: every page is written in short sentences.
func TestDocsSentences(t *testing.T) {
	all := 0
	for _, p := range pages(t) {
		for _, w := range wordy(p) {
			t.Errorf("%s: %s", p.path, w)
		}
		all += len(sentences(p))
	}
	if all < 2000 {
		t.Errorf("found only %d sentences", all)
	}
}

// TestDocsSentencesNotices shows what is found, and what is not.
func TestDocsSentencesNotices(t *testing.T) {
	of := func(n int) string { return "It " + strings.Repeat("is ", n-2) + "so." }
	for _, tc := range []struct{ text, want string }{
		{of(20) + " " + of(20) + "\n" + of(20) + "\n\n- " + of(20) + "\n- " + of(20), ""},
		{of(21) + " " + of(21) + "\n" + of(21) + "\n\n- " + of(3) + "\n- " + of(3), "the median sentence has 21 words"},
		{of(3) + " " + of(3) + " " + of(3) + " " + of(3) + " " + of(26), "one sentence of ten has 26 words or more"},
		{of(35), ""},
		{"See [this\npage](x.md). " + of(36), "36 words: " + of(36)},
		{"# " + of(50) + "\n\n| " + of(50) + " |\n\n    " + of(50) + "\n\n```\n" + of(50) + "\n```\n`" + of(50) + "`", ""},
		{"It reads e.g. this, and " + of(44), "49 words: It reads e.g. this, and " + of(44)},
	} {
		if got := strings.Join(wordy(parsePage("x.md", tc.text)), ", "); got != tc.want {
			t.Errorf("found %q, want %q, in\n%s", got, tc.want, tc.text)
		}
	}
	if got := strings.Join(sentences(parsePage("x.md", "**One.** Two has `a. B`. agent-init is three! 4 is last (so\nit is). \"Five\"\n1. Six;\n2. - Seven: eight.")), "|"); got != `**One.**|Two has Code.|agent-init is three!|4 is last (so it is).|"Five"|Six;|- Seven: eight.` {
		t.Errorf("%s", got)
	}
}

// TestHelpWords: a command and a flag are told in few words, the subject or the verb first.
func TestHelpWords(t *testing.T) {
	for _, c := range commands() {
		if n := words(c.summary); n > summaryWords {
			t.Errorf("%s: %d words: %s", c.name, n, c.summary)
		}
		c.flagSet(new(environment)).VisitAll(func(f *flag.Flag) {
			if n := words(f.Usage); n > usageWords {
				t.Errorf("%s --%s: %d words: %s", c.name, f.Name, n, f.Usage)
			}
			if strings.HasSuffix(f.Usage, ".") {
				t.Errorf("%s --%s ends like a sentence: %s", c.name, f.Name, f.Usage)
			}
		})
	}
}
