package judge

import (
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

// pattern is the path of a rule, read once.
type pattern struct {
	any    bool // it is about no path
	broken bool // it can't be read
	strict shape
	loose  []shape // as a denial compares it
}

// shape is what a path is compared with, segment by segment. An open one stands for what is below as well.
type shape struct {
	segments []string
	open     bool
}

// newPattern reads the path of a rule, which is spelled out as a path is. An escaped star could not be told from one that
// stands for anything.
func newPattern(path string) pattern {
	if path == "" {
		return pattern{any: true}
	}
	out, refusal := spelled(path)
	if refusal != nil || strings.Contains(strings.ToUpper(path), "%2A") {
		return pattern{broken: true}
	}
	p := pattern{strict: newShape(out), loose: []shape{newShape(loosened(out))}}
	if early := strings.ReplaceAll(out, escapedSlash, "/"); early != out {
		p.loose = append(p.loose, newShape(loosened(early)))
	}
	return p
}

func newShape(path string) shape {
	fixed, open := strings.CutSuffix(path, "/**")
	return shape{strings.Split(fixed, "/"), open}
}

// along compares a path with a shape.
func (s shape) along(path []string, fits func(pattern, segment string) bool) bool {
	if len(path) < len(s.segments) || len(path) > len(s.segments) && !s.open {
		return false
	}
	for i, p := range s.segments {
		if !fits(p, path[i]) {
			return false
		}
	}
	return true
}

// allows says whether the pattern of a rule that allows has a path that is spelled out. What can't be read has none.
func (p *pattern) allows(path []string) bool {
	return p.any || !p.broken && p.strict.along(path, strictly)
}

// denies says whether the pattern of a denial has a path in one of the ways that servers could read it. What can't be
// read has any.
func (p *pattern) denies(readings [][]string) bool {
	if p.any || p.broken {
		return true
	}
	for _, s := range p.loose {
		for _, read := range readings {
			if s.along(read, loosely) {
				return true
			}
		}
	}
	return false
}

// strictly says whether a segment is one of a pattern. An escaped slash, and what else could end a segment, has to stand
// in the pattern itself. Where ** stands nothing is compared: there all of what it could be is below.
func strictly(pattern, segment string) bool {
	if !strings.Contains(pattern, "*") {
		return pattern == segment
	}
	if strings.ContainsAny(segment, hard) || strings.ContainsAny(pattern, hard) {
		for _, c := range hard {
			if strings.Count(pattern, string(c)) != strings.Count(segment, string(c)) {
				return false
			}
		}
	}
	return route.MatchSegment(pattern, segment)
}

// loosely says whether pattern, in which each * stands for any text, is all of s.
func loosely(pattern, s string) bool {
	if pattern == "*" || pattern == s {
		return true
	}
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return false
	}
	s, ok := strings.CutPrefix(s, parts[0])
	for _, part := range parts[1 : len(parts)-1] {
		if ok {
			_, s, ok = strings.Cut(s, part)
		}
	}
	return ok && strings.HasSuffix(s, parts[len(parts)-1])
}

// readings are the paths that servers could read a path as, each in its segments, as a denial compares them.
func readings(path string) [][]string {
	all := []string{path}
	for _, read := range []func(string) string{
		func(p string) string { return strings.ReplaceAll(p, escapedSlash, "/") }, // decoded too early
		func(p string) string { return p[:indexOr(p, "?#")] },                     // likewise
		withoutParameters,
		withoutFormat,
	} {
		for _, p := range all {
			if other := read(p); other != p {
				all = append(all, other)
			}
		}
	}
	split := make([][]string, len(all))
	for i, p := range all {
		split[i] = strings.Split(loosened(p), "/")
	}
	return split
}

func indexOr(s, chars string) int {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return i
	}
	return len(s)
}

// withoutParameters is a path as servers in Java read it: what follows a semicolon is no part of a segment.
func withoutParameters(path string) string {
	parts := strings.Split(path, "/")
	for i, s := range parts {
		parts[i] = s[:indexOr(s, ";")]
	}
	return strings.Join(parts, "/")
}

// withoutFormat is a path as Rails and Grape read it: the extension of the last segment says how to answer.
func withoutFormat(path string) string {
	path = strings.TrimRight(path, "/. ")
	if dot := strings.LastIndexByte(path, '.'); dot > strings.LastIndexByte(path, '/')+1 {
		return path[:dot]
	}
	return path
}

// loosened makes alike what a server could take for the same: letters by case, and what stands at the end of a segment.
func loosened(path string) string {
	parts := strings.Split(strings.TrimRight(lookalike(path), "/"), "/")
	for i, s := range parts {
		parts[i] = strings.TrimRight(strings.ToLower(strings.ToUpper(s)), ". ")
	}
	return strings.Join(parts, "/")
}
