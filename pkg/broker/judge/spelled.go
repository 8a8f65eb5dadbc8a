package judge

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/agent-init/agent-init/internal/lazy"
)

const (
	maxSpelled = 8 << 10 // bytes of a path; servers take 8 KiB for the whole line (RFC 9112, section 3)

	// escapedSlash stands for %2F in a path that is spelled out. No byte of a path is a NUL.
	escapedSlash = "\x00"

	// hard are the characters at which a server that decodes too early, or reads parameters of a path, ends a segment.
	hard = escapedSlash + ";?#"
)

// escape is one that is left when all were decoded: who decodes twice reads another path.
var escape = lazy.Pattern(`%[0-9A-Fa-f]{2}`)

// session begins what ASP.NET takes out of a path: its sessions without cookies, (S(…)), wherever they stand.
var session = lazy.Pattern(`(?i)\([afs]\(`)

// spelled gives a path of an inspected name its one spelling: what was escaped is decoded, but for a slash. Unlike the
// routes, whose clients are known, a name may have clients that escape what they need not, write %2f for %2F, and have a
// slash within a segment (GitLab's projects, npm's scopes). What leads to another segment, or to another one with some
// servers, is refused.
func spelled(path string) (string, *Refusal) {
	if !strings.HasPrefix(path, "/") {
		return "", refuse("path", "what is asked for is not a path")
	}
	if len(path) > maxSpelled {
		return "", refuse("path", "the path has more than %d bytes", maxSpelled)
	}
	var out strings.Builder
	for rest := path; rest != ""; {
		c, size := rest[0], 1
		if c == '%' {
			if c, size = anyEscape(rest); c < ' ' || c == '\x7f' || c == '\\' {
				return "", refuse("path", "the path has an escape that servers read in different ways")
			}
		} else if c != '/' && c != ';' && !plainInPath(c) {
			return "", refuse("path", "the path has a character that has to be escaped")
		}
		if c == '/' && size > 1 {
			c = escapedSlash[0]
		}
		out.WriteByte(c)
		rest = rest[size:]
	}
	if !utf8.ValidString(out.String()) {
		return "", refuse("path", "the path is not in UTF-8")
	}
	return out.String(), segments(out.String())
}

// anyEscape is the byte that an escape at the start of s stands for, and its length. What is no escape is taken for NUL.
func anyEscape(s string) (byte, int) {
	if len(s) < 3 {
		return 0, len(s)
	}
	return unescape(s[:1] + strings.ToUpper(s[1:3]))
}

// segments refuses a path whose segments could be read as others: empty ones, dots, and characters that a server which
// makes letters alike (Unicode's form NFKC, or the best fit of an older set) takes for a slash, a dot or an escape.
func segments(path string) *Refusal {
	for i, read := range []string{path, lookalike(path)} {
		if i > 0 && read == path {
			break
		}
		if strings.Count(read, "/") != strings.Count(path, "/") || strings.Contains(read, `\`) || escape().MatchString(read) {
			return refuse("path", "the path has a character that servers take for another, or an escape within an escape")
		}
		if session().MatchString(read) {
			return refuse("path", "the path has what ASP.NET takes out of it")
		}
		pieces := strings.Split(strings.ReplaceAll(read, escapedSlash, "/"), "/")[1:]
		for j, piece := range pieces {
			last := j == len(pieces)-1
			if end := strings.IndexAny(piece, hard); end >= 0 {
				piece = piece[:end]
			}
			// Windows takes no notice of dots and spaces at the end of a name.
			if strings.Trim(piece, ". ") == "" && (piece != "" || !last) {
				return refuse("path", "the path has an empty segment, or one of dots")
			}
		}
	}
	return nil
}

// slashes are characters that the best fit of Windows's older sets makes slashes of.
var slashes = strings.NewReplacer("\u2044", "/", "\u2215", "/", "\u2216", `\`, "\u29f5", `\`, "\u29f8", "/")

// lookalike is a text in Unicode's form NFKC, where letters that look like others are those, without what has no width.
func lookalike(s string) string {
	if strings.IndexFunc(s, func(c rune) bool { return c >= utf8.RuneSelf }) < 0 {
		return s
	}
	unseen := func(c rune) rune {
		if unicode.In(c, unicode.Cf, unicode.Variation_Selector) {
			return -1
		}
		return c
	}
	return norm.NFKC.String(slashes.Replace(strings.Map(unseen, s)))
}
