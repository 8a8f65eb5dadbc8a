package policy

import (
	"strings"
	"testing"

	allowlist "github.com/agent-init/agent-init/allowlist.d"
)

func TestParseLine(t *testing.T) {
	for text, want := range map[string]Line{
		"API.Example.com.":             {Text: "api.example.com"},
		"  *.example.com:8443  ":       {Text: "*.example.com:8443"},
		"münchen.example":              {Text: "xn--mnchen-3ya.example"},
		"db.example   private":         {Text: "db.example private"},
		"a.example required":           {Text: "a.example required", Required: true},
		"10.0.0.0/8:5432":              {Text: "10.0.0.0/8:5432"},
		"[2001:db8::1]:53/udp":         {Text: "[2001:db8::1]:53/udp"},
		"!a.example":                   {Text: "!a.example", Deny: true},
		"@github":                      {Text: "@github"},
		"!@github":                     {Text: "!@github", Deny: true},
		"api.example.com:443":          {Text: "api.example.com:443"},
		"ntp.example:123/udp  private": {Text: "ntp.example:123/udp private"},
	} {
		got, err := ParseLine(text, allowlist.Files)
		if err != nil || got.Text != want.Text || got.Deny != want.Deny || got.Required != want.Required || len(got.Warnings) > 0 {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
		again, err := ParseLine(got.Text, allowlist.Files)
		if err != nil || again.Text != got.Text {
			t.Errorf("%q is not canonical: %+v, %v", got.Text, again, err)
		}
	}
}

func TestParseLineRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "missing",
		" \t":                        "missing",
		"# a comment":                "one line",
		"a.example\n*.example.com":   "one line",
		"a.example # and":            "one line",
		"a.example\x00":              "one line",
		"a.example\u009b":            "one line",
		"a.example b.example":        "one entry per line",
		"https://api.example.com/v1": "did you mean api.example.com?",
		"*":                          "allows everything",
		"*.com":                      "public suffix",
		"0.0.0.0/0":                  "allows everything",
		"169.254.169.254":            "metadata",
		"127.0.0.1:80":               "no effect",
		"@nosuch":                    "unknown preset",
		"a.example:0":                "a port is",
	} {
		got, err := ParseLine(text, allowlist.Files)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
		if err != nil && strings.HasPrefix(err.Error(), ":") {
			t.Errorf("%q: the error begins with a place: %v", text, err)
		}
	}
	l, err := ParseLine("*.github.io", allowlist.Files)
	if err != nil || len(l.Warnings) != 1 || strings.HasPrefix(l.Warnings[0].Error(), ":") {
		t.Errorf("no warning: %+v, %v", l, err)
	}
}
