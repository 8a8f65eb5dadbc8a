package policy

import (
	"regexp"
	"strings"
	"testing"
)

func TestPatterns(t *testing.T) {
	for _, tt := range []struct{ pattern, rule string }{
		{`^api\.example\.com$`, "api.example.com"},
		{`^API\.Example\.com$`, "api.example.com"},
		{`^api[.]example[.]com$`, "api.example.com"},
		{`^localai$`, "localai"},
		{`^my_service-2$`, "my_service-2"},
		{`^10\.200\.200\.1$`, "10.200.200.1"},
		{`^registry\.corp\.example$ private required`, "registry.corp.example private required"},
		{`(^|\.)example\.com$`, "*.example.com"},
		{`(\.|^)example\.com$`, "*.example.com"},
		{`(^|[.])example[.]com$`, "*.example.com"},
		{`^(.*\.)?example\.com$`, "*.example.com"},
		{`^(.+\.)?example\.com$`, "*.example.com"},
		{`^([^.]+\.)*example\.com$`, "*.example.com"},
		{`^([a-zA-Z0-9_-]+\.)*example\.com$`, "*.example.com"},
		{`^([A-Za-z0-9_-]+\.)*example\.com$`, "*.example.com"},
		{`^([a-z0-9_-]+\.)*example\.com$`, "*.example.com"},
		{`!^gist\.github\.com$`, "!gist.github.com"},
		{`!(^|\.)com$`, "!*.com"},
	} {
		if got := rules(parse(t, "filter.txt", tt.pattern+"  # why\n")); len(got) != 1 || got[0] != tt.rule {
			t.Errorf("%q reads as %q, want %q", tt.pattern, got, tt.rule)
		}
	}
	if got := rules(parse(t, "policy.yaml", `domains: ['^(.*\.)?example\.com$']`)); len(got) != 1 || got[0] != "*.example.com" {
		t.Errorf("in YAML: %q", got)
	}
}

// What matches more, or less, than an entry can say is refused, and never taken for something near it.
func TestPatternErrors(t *testing.T) {
	const form = "a pattern can be one whole name"
	for _, tt := range []struct{ pattern, says, suggests string }{
		{`^api.example.com$`, form, "api.example.com"},
		{`^api\.example\.com`, form, "api.example.com"},
		{`api\.example\.com`, form, "api.example.com"},
		{`api\.example\.com$`, form, "*.api.example.com"},
		{`(^|\.)example\.com`, form, "*.example.com"},
		{`^(.*)localai$`, form, ""},
		{`\.com$`, form, ""},
		{`\.example\.com$`, form, "*.example.com"},
		{`.*\.example\.com$`, form, "*.example.com"},
		{`^.*\.example\.com$`, form, "*.example.com"},
		{`(.*\.)?example\.com$`, form, "*.example.com"},
		{`^(.*)?example\.com$`, form, "*.example.com"},
		{`^(.*\.)example\.com$`, form, "*.example.com"},
		{`^(.*\.)*example\.com`, form, "*.example.com"},
		{`^([a-z0-9-]+\.)*example\.com$`, form, "*.example.com"},
		{`^([a-z0-9_-]+\.)?example\.com$`, form, "*.example.com"},
		{`^(?:.*\.)?example\.com$`, form, "*.example.com"},
		{`^(api|www)\.example\.com$`, form, "*.example.com"},
		{`^api\.example\.(com|net)$`, form, ""},
		{`^example\.com$|^example\.net$`, form, ""},
		{`^https\.example\.com:443$`, form, "https.example.com:443"},
		{`(^|\.)(^|\.)example\.com$`, form, "*.example.com"},
		{`^^example\.com$`, form, ""},
		{`^example\.com$$`, form, ""},
		{`^example\\.com$`, form, "example.com"},
		{`^exa\mple\.com$`, form, "example.com"},
		{`^$`, form, ""},
		{`(^|\.)$`, form, ""},
		{`^\.$`, form, ""},
		{`^example\.com\.$`, form, "example.com."},
		{`^münchen\.example$`, form, "münchen.example"},
		{`(^|\.)com$`, "covers a public suffix", ""},
		{`^(.*\.)?co\.uk$`, "covers a public suffix", ""},
		{`.*com$`, form, ""},
		{`(^|\.)10\.0\.0\.1$`, "can't end in a number", ""},
		{`^https?://api\.example\.com/`, "an entry is a name, not a URL", ""},
	} {
		got := failure(t, "filter.txt", tt.pattern)
		if !strings.Contains(got, tt.says) || !strings.HasPrefix(got, "filter.txt:1:1: ") {
			t.Errorf("%q: %s", tt.pattern, got)
		}
		_, hint, _ := strings.Cut(got, "(did you mean ")
		if hint = strings.TrimSuffix(hint, "?)"); hint != tt.suggests {
			t.Errorf("%q: suggests %q, want %q", tt.pattern, hint, tt.suggests)
		}
		if tt.suggests != "" {
			parse(t, "filter.txt", tt.suggests)
		}
	}
}

// FuzzPattern holds what is accepted against what an expression matches.
func FuzzPattern(f *testing.F) {
	for _, s := range append(belowPatterns[:], "^", "", "^(.*)", ".*", "(") {
		f.Add(s+`example\.com$`, "api.example.com")
		f.Add(s+`example\.com`, "notexample.com")
		f.Add(s+`example.com$`, "examplescom.net")
		f.Add(s+`a[.]example\.com$`, "a.example.com")
	}
	f.Add(`^10\.0\.0\.1$`, "10.0.0.1")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		target, fault := parsePattern(pattern)
		if fault != nil {
			if target != "" {
				t.Fatalf("%q: both %q and %v", pattern, target, fault)
			}
			return
		}
		p, err := Parse(&Bundle{Files: []File{{Name: "a.txt", Data: []byte(target)}}}, nil)
		if err != nil || len(p.rules) != 1 || p.rules[0].Name == "" {
			return // as it would be for the entry; an address has no names to compare
		}
		re, err := regexp.Compile("(?i)" + pattern)
		if err != nil {
			t.Fatalf("%q is taken for %q, and is no expression: %v", pattern, target, err)
		}
		rule := p.rules[0].Name
		for _, n := range []string{name, rule, "x." + rule, "x.y." + rule, "x_-1." + rule, "x" + rule, rule + ".evil.test", "evil.test", strings.ReplaceAll(rule, ".", "x")} {
			n, problem := canonical(n)
			if problem != "" {
				continue // no such name can be asked for
			}
			if got, want := p.Lookup(n).Allowed, re.MatchString(n); got != want {
				t.Fatalf("%q is taken for %q: %q is allowed: %v, but matched: %v", pattern, target, n, got, want)
			}
		}
	})
}
