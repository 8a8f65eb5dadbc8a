package policy

import (
	"slices"
	"testing"
)

// TestSince: what two policies open differently is among what has changed, whichever way the rules are written.
func TestSince(t *testing.T) {
	for _, tt := range []struct {
		old, next        string
		names, wildcards []string
	}{
		{"domains: [a.test, b.test]", "domains: [a.test, b.test]", nil, nil},
		{"domains: [a.test, b.test]", "domains: [a.test, b.test, '!b.test']", []string{"b.test"}, nil},
		{"domains: [a.test, b.test, c.test]", "domains: [a.test, c.test]", []string{"b.test"}, nil},
		{"domains: [a.test]", "domains: ['a.test:443']", []string{"a.test"}, nil},
		{"domains: [a.test]", "domains: ['a.test private']", []string{"a.test"}, nil},
		{"domains: [a.test, '*.w.test']", "domains: [a.test, '*.w.test', '!*.x.w.test']", nil, []string{"x.w.test"}},
		{"domains: [a.test, 10.0.0.1]", "domains: [a.test, 10.0.0.2]", nil, nil},
		{"", "domains: [a.test]", []string{"a.test"}, nil},
	} {
		c := parse(t, "policy.yaml", tt.next).Since(parse(t, "policy.yaml", tt.old))
		for _, name := range tt.names {
			if !slices.Contains(c.Names, name) {
				t.Errorf("%s after %s: %+v", tt.next, tt.old, c)
			}
		}
		if len(tt.names) == 0 && len(c.Names) > 0 || !slices.Equal(c.Wildcards, tt.wildcards) {
			t.Errorf("%s after %s: %+v", tt.next, tt.old, c)
		}
	}
	c := Change{Wildcards: []string{"w.test"}}
	for name, want := range map[string]bool{"w.test": true, "a.w.test": true, "a.b.w.test": true, "aw.test": false, "test": false, "": false} {
		if c.Covers(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
