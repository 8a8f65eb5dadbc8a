package policy

import (
	"regexp"
	"strings"
	"sync"
)

// Lists for proxies (tinyproxy's Filter, for one) hold regular expressions that are searched for in the host. Those
// that mean one whole name, or a name and every name below it, are taken for that entry. Others match more, or less,
// than any entry does, and nobody but the list's author knows which was meant: they are errors.

// belowPatterns are the beginnings that stand for a name and every name below it, when an escaped name and $ follow.
var belowPatterns = [...]string{
	`(^|\.)`, `(\.|^)`, `^(.*\.)?`, `^(.+\.)?`,
	`^([^.]+\.)*`, `^([a-zA-Z0-9_-]+\.)*`, `^([A-Za-z0-9_-]+\.)*`, `^([a-z0-9_-]+\.)*`,
}

// patterns matches the expressions that are taken: how one begins, and its name, in which dots are escaped.
var patterns = sync.OnceValue(func() *regexp.Regexp {
	below := make([]string, len(belowPatterns))
	for i, p := range belowPatterns {
		below[i] = regexp.QuoteMeta(p)
	}
	return regexp.MustCompile(`\A(\^|` + strings.Join(below, "|") + `)([\w-]+(?:\\\.[\w-]+)*)\$\z`)
})

// isPattern says whether s has what only a regular expression has.
func isPattern(s string) bool {
	for i := range len(s) {
		switch s[i] {
		case '^', '$', '\\', '(', '|':
			return !strings.Contains(s, "://")
		}
	}
	return false
}

// parsePattern returns the target that means what the extended regular expression s means, if there is one.
func parsePattern(s string) (target string, f *fault) {
	plain := strings.ReplaceAll(s, "[.]", `\.`)
	m := patterns().FindStringSubmatch(plain)
	if m == nil {
		return "", &fault{0, s, `a pattern can be one whole name, ^api\.example\.com$, or a name and all below it, ^(.*\.)?example\.com$`, probably(plain)}
	}
	target = strings.ReplaceAll(m[2], `\.`, ".")
	if m[1] != "^" {
		target = "*." + target
	}
	return target, nil
}

// probably returns the entry that was probably meant by an expression, or "".
func probably(s string) string {
	whole := strings.HasPrefix(s, "^") || !strings.HasSuffix(s, "$")
	s = strings.TrimSuffix(strings.TrimPrefix(s, "^"), "$")
	if i := strings.LastIndexAny(s, "*+?)]"); i >= 0 {
		s, whole = s[i+1:], false
	}
	name := strings.ReplaceAll(s, `\`, "")
	if trimmed := strings.TrimLeft(name, "."); trimmed != name {
		name, whole = trimmed, false
	}
	if !whole {
		name = "*." + name
	}
	var r Rule
	if f := parseTarget(name, &r); f != nil || !strings.Contains(r.Name, ".") || vet(&r).wrong {
		return ""
	}
	return name
}
