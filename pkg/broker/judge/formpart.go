package judge

import (
	"bytes"
	"mime"
	"strings"
)

const (
	maxPartHead  = 8 << 10 // bytes
	maxPartLines = 64      // of a part's head, which is looked at anew with each line
	maxBoundary  = 70      // RFC 2046, section 5.1.1
)

// bounded takes what stands between the parts of a body. Of two boundaries, or a quoted one, readers take this one or that:
// what is the head of a part to one is content to another.
func (f *Form) bounded(lowerType, boundary string) *Refusal {
	const odd = "the content type has no boundary, or one that servers read in different ways"
	if boundary == "" || len(boundary) > maxBoundary || strings.Count(lowerType, "boundary=") != 1 || strings.Contains(lowerType, `\`) || strings.ContainsFunc(boundary, oddInLine) {
		return refuse("header", odd)
	}
	f.between = "--" + boundary
	return nil
}

// inPart is content in which no boundary begins.
func (f *Form) inPart(p []byte) int {
	if f.skip || len(f.word) > 0 {
		return 0
	}
	return until(p, "-")
}

// part looks for boundaries, and at the heads that follow them.
func (f *Form) part(c byte) *Refusal {
	f.word = append(f.word, c)
	if !f.skip {
		for !strings.HasPrefix(f.between, string(f.word)) {
			f.word = f.word[1:]
		}
		if f.skip = string(f.word) == f.between; f.skip {
			f.word = nil
		}
		return nil
	}
	switch {
	case len(f.word) > maxPartHead:
		return refuse("body", "the head of a part of the body has more than %d bytes", maxPartHead)
	case c == '\n' && bytes.Count(f.word, []byte("\n")) > maxPartLines:
		return refuse("body", "the head of a part of the body has more than %d lines", maxPartLines)
	case c != '\n': // with the line, nothing of the value has come
		return nil
	}
	refusal := partHead(string(f.word))
	if bytes.HasSuffix(f.word, []byte("\r\n\r\n")) { // to some, a head ends nowhere else
		f.word, f.skip = nil, false
	}
	return refusal
}

// disposition is the header that names a part.
const disposition = "content-disposition"

// partHead looks for a name in what there is of a head. Servers differ in where they look for one, so what changes the
// method is to stand nowhere in it, as a word of its own.
func partHead(head string) *Refusal {
	for line := range strings.SplitSeq(unfolded.Replace(head), "\n") {
		kind, value, ok := strings.Cut(line, ":")
		if !ok || !strings.EqualFold(strings.TrimSpace(kind), disposition) {
			continue
		}
		_, parameters, err := mime.ParseMediaType(strings.TrimSpace(value))
		if err != nil {
			return refuse("body", "the head of a part of the body can't be read")
		}
		if name := strings.ReplaceAll(parameters["name"], `\`, ""); overrides(name) { // which some servers unquote
			return inBody(name)
		}
	}
	plain := underlined(strings.ReplaceAll(head, `\`, ""))
	for word := range overriding {
		for at, rest := 0, plain; ; {
			i := strings.Index(rest, word)
			if i < 0 {
				break
			}
			at, rest = at+i+len(word), rest[i+len(word):]
			if !inWord(plain, at-len(word)-1) && !inWord(plain, at) && !strings.HasPrefix(rest, "-") {
				return inBody(word)
			}
		}
	}
	return nil
}

// unfolded are lines of which one that begins with a blank goes on with the one before (RFC 5322, section 2.2.3).
var unfolded = strings.NewReplacer("\r\n ", " ", "\r\n\t", " ", "\n ", " ", "\n\t", " ", "\r\n", "\n")

func inWord(s string, i int) bool {
	return i >= 0 && i < len(s) && (digit(s[i]) || 'a' <= s[i] && s[i] <= 'z')
}
