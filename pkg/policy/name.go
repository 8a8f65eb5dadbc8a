package policy

import (
	"fmt"
	"strings"

	"golang.org/x/net/idna"
)

const (
	maxName  = 253 // octets of a name, RFC 1035 without the root
	maxLabel = 63
)

// canonical returns s in the one form in which names are compared: lower case, A-labels, no trailing dot. The common
// case costs no allocation. The problem, if there is one, is for people; then the name is "".
func canonical(s string) (name, problem string) {
	name = strings.TrimSuffix(s, ".")
	if strings.ContainsFunc(name, func(r rune) bool { return r >= 0x80 }) {
		a, err := idna.Lookup.ToASCII(name)
		if err != nil {
			return "", "not a valid internationalised name"
		}
		name = strings.TrimSuffix(a, ".")
	}
	name = strings.ToLower(name)
	if problem := checkName(name); problem != "" {
		return "", problem
	}
	return name, ""
}

// checkName says what is wrong with a lower-case ASCII name, if anything is. Underscores pass, because services on
// container networks have them.
func checkName(name string) string {
	switch {
	case name == "":
		return "the name is missing"
	case len(name) > maxName:
		return "the name is longer than 253 characters"
	}
	for label := range strings.SplitSeq(name, ".") {
		for _, c := range label {
			if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
				return fmt.Sprintf("a name can't contain %q", c)
			}
		}
		switch {
		case label == "":
			return "the name has an empty label"
		case len(label) > maxLabel:
			return "a label is longer than 63 characters"
		case label[0] == '-' || label[len(label)-1] == '-':
			return "a label begins or ends with a hyphen"
		}
	}
	if numeric(name[strings.LastIndexByte(name, '.')+1:]) {
		return "a name can't end in a number: it would be read as an address"
	}
	return ""
}

// numeric says whether a last label makes clients read the whole name as an IPv4 address (the "ends in a number" rule
// of the URL standard).
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
