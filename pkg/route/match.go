package route

import "strings"

// MatchPath says whether a canonical path below the route is one of the endpoint's, whatever the method.
func (e *Endpoint) MatchPath(path string) bool {
	pattern := e.Path
	if tail, ok := strings.CutPrefix(pattern, "/**/"); ok {
		segments, depth := strings.Split(path, "/"), strings.Count(tail, "/")+1
		if segments[0] != "" || len(segments) < depth+2 { // ** is one at least
			return false
		}
		pattern, path = tail, strings.Join(segments[len(segments)-depth:], "/")
	}
	if below, ok := strings.CutSuffix(pattern, "**"); ok && strings.HasSuffix(below, "/") {
		depth := strings.Count(below, "/")
		if strings.Count(path, "/") < depth {
			return false
		}
		segments := strings.SplitAfterN(path, "/", depth+1)
		pattern, path = below, strings.Join(segments[:depth], "")
	}
	patterns, segments := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(patterns) != len(segments) {
		return false
	}
	for i, p := range patterns {
		if !MatchSegment(p, segments[i]) {
			return false
		}
	}
	return true
}

// MatchSegment says whether pattern, in which each * stands for at least one character, is all of s. Each part is
// looked for once, at the first place that it can have: the time is that of reading s. Behind a colon, Google's APIs have
// the name of a method (https://google.aip.dev/136), so no * stands for one where the pattern has one.
func MatchSegment(pattern, s string) bool {
	if colons := strings.Count(pattern, ":"); colons > 0 && strings.Count(s, ":") != colons {
		return false
	}
	parts := strings.Split(pattern, "*")
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return pattern == s
	}
	s, ok := strings.CutPrefix(s, first)
	for _, part := range parts[1 : len(parts)-1] {
		if !ok || s == "" {
			return false
		}
		_, s, ok = strings.Cut(s[1:], part)
	}
	return ok && len(s) > len(last) && strings.HasSuffix(s, last)
}
