package policy

import (
	"strings"
	"testing"
)

// TestApprovals: nobody decides from afar without a key, nor by a way that is none; what the broker is to ask is its
// own to reach.
func TestApprovals(t *testing.T) {
	const secret = "secret: 'file:/run/secrets/approvals'"
	for text, want := range map[string]string{
		secret + ", directory: /run/approvals":                             "",
		secret + ", directory: /run/approvals, most: 24h, hold: 30s":       "",
		secret + ", poll: {to: 'https://ask.test/{container}/{start}'}":    "",
		secret + ", poll: {to: 'https://ask.test/a', every: 1s}, most: 60": "",
		"hold: 5s":                      "",
		"directory: /run/approvals":     "answers are signed",
		"poll: {to: https://ask.test/}": "answers are signed",
		secret:                          "no answer can come",
		"secret: /run/secrets/x, directory: /run/approvals": "is file:/PATH",
		"secret: 'env:KEY', directory: /run/approvals":      "is file:/PATH",
		secret + ", directory: approvals":                   "is the path of one",
		secret + ", directory: /":                           "is the path of one",
		secret + ", directory: /run/../etc":                 "is the path of one",
		secret + ", directory: /run/approvals, most: 25h":   "approvals.most is a time from 1s to 24h0m0s",
		secret + ", directory: /run/approvals, most: 0s":    "approvals.most is a time from 1s to 24h0m0s",
		"hold: 31s":                     "approvals.hold is a time from 1s to 30s",
		"hold: -1s":                     "approvals.hold is a time from 1s to 30s",
		secret + ", poll: {every: 10s}": "no answer can come",
		secret + ", poll: {to: 'http://ask.test/'}":                "a webhook is a URL",
		secret + ", poll: {to: 'https://{container}.test/'}":       "a webhook is a URL",
		secret + ", poll: {to: 'https://ask.test/{}'}":             "{} stands for a credential",
		secret + ", poll: {to: 'https://ask.test/', every: 100ms}": "every is a time from 1s",
		"allow: yes": "unknown key",
	} {
		p, err := Parse(&Bundle{Files: []File{{Name: "policy.yaml", Data: []byte("approvals: {" + text + "}\n")}}}, nil)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		case want == "" && p.Settings.Approvals.Poll.To != "" && (p.Broker == nil || !p.Broker.Lookup("ask.test").Allowed || p.Lookup("ask.test").Allowed):
			t.Errorf("%s: the broker alone is to reach the host", text)
		}
	}
	p := parse(t, "policy.yaml", "approvals: {"+secret+"}\nnotify: {webhook: {to: 'https://hooks.test/'}}\n")
	if a := p.Settings.Approvals; a.Secret != "/run/secrets/approvals" || a.IsZero() {
		t.Errorf("a webhook may answer: %+v", a)
	}
}

// TestPollURL: who asks stands in the URL, and can lead it nowhere else.
func TestPollURL(t *testing.T) {
	p := parse(t, "policy.yaml", "approvals: {secret: 'file:/k', poll: {to: 'https://ask.test/a/{container}/{start}?k={}', credential: 'file:/c'}}\n")
	for _, c := range []struct{ container, want string }{
		{"agent-0", "https://ask.test/a/agent-0/00ff?k=secret"},
		{"a/../b?c#d", "https://ask.test/a/a%2F..%2Fb%3Fc%23d/00ff?k=secret"},
		{"{}", "https://ask.test/a/%7B%7D/00ff?k=secret"},
	} {
		if full, host, err := p.Settings.Approvals.Poll.Of(c.container, "00ff").URL("secret"); full != c.want || host != "ask.test" || err != nil {
			t.Errorf("%s: %s, %s, %v", c.container, full, host, err)
		}
	}
}
