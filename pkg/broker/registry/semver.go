package registry

import (
	"cmp"
	"strings"
)

// version is one of https://semver.org. Its build counts for nothing.
type version struct {
	core [3]string
	pre  []string
}

// maxVersion is the longest that npm takes: MAX_LENGTH, https://github.com/npm/node-semver/blob/main/internal/constants.js.
const maxVersion = 256

// parseVersion reads MAJOR.MINOR.PATCH, with what may stand behind.
func parseVersion(s string) (v version, ok bool) {
	if len(s) > maxVersion {
		return v, false
	}
	s, _, _ = strings.Cut(s, "+")
	core, pre, has := strings.Cut(s, "-")
	parts := strings.Split(core, ".")
	if len(parts) != 3 {
		return v, false
	}
	for i, p := range parts {
		if !digits(p) {
			return v, false
		}
		v.core[i] = p
	}
	if has {
		v.pre = strings.Split(pre, ".")
	}
	return v, true
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// compare orders two of them (section 11).
func (v version) compare(w version) int {
	for i := range v.core {
		if c := numbers(v.core[i], w.core[i]); c != 0 {
			return c
		}
	}
	if (v.pre == nil) != (w.pre == nil) {
		if v.pre == nil {
			return 1
		}
		return -1
	}
	for i := range min(len(v.pre), len(w.pre)) {
		a, b := v.pre[i], w.pre[i]
		var c int
		switch {
		case digits(a) && digits(b):
			c = numbers(a, b)
		case digits(a):
			c = -1
		case digits(b):
			c = 1
		default:
			c = cmp.Compare(a, b)
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(v.pre), len(w.pre))
}

// numbers compares two of any size.
func numbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// highest is the version that a tag leads to when the one that it led to does not exist: the highest that is no
// prerelease, and not above that. Where there is none such, it is the highest of all, or "".
func highest(of []string, most string) string {
	bound, bounded := parseVersion(most)
	best, rank := "", -1
	var top version
	for _, s := range of {
		v, ok := parseVersion(s)
		if !ok {
			continue
		}
		r := 0
		if v.pre == nil {
			r = 1
			if !bounded || v.compare(bound) <= 0 {
				r = 2
			}
		}
		if r > rank || r == rank && v.compare(top) > 0 {
			best, rank, top = s, r, v
		}
	}
	return best
}
