package policy

import (
	"strings"
	"testing"
)

// TestApprovals: nobody decides from afar without a key, nor by a way that is none.
func TestApprovals(t *testing.T) {
	const secret = "secret: 'file:/run/secrets/approvals'"
	for text, want := range map[string]string{
		secret + ", directory: /run/approvals":                       "",
		secret + ", directory: /run/approvals, most: 24h, hold: 30s": "",
		"hold: 5s":                  "",
		"directory: /run/approvals": "answers are signed",
		secret:                      "no answer can come",
		"secret: /run/secrets/x, directory: /run/approvals": "is file:/PATH",
		"secret: 'env:KEY', directory: /run/approvals":      "is file:/PATH",
		secret + ", directory: approvals":                   "is the path of one",
		secret + ", directory: /":                           "is the path of one",
		secret + ", directory: /run/../etc":                 "is the path of one",
		secret + ", directory: /run/approvals, most: 25h":   "approvals.most is a time from 1s to 24h0m0s",
		secret + ", directory: /run/approvals, most: 0s":    "approvals.most is a time from 1s to 24h0m0s",
		"hold: 31s":  "approvals.hold is a time from 1s to 30s",
		"hold: -1s":  "approvals.hold is a time from 1s to 30s",
		"allow: yes": "unknown key",
		secret + ", directory: /run/approvals, poll: {to: x}": "policy.yaml:1:79: agent-init polls for no answers",
	} {
		_, err := Parse(&Bundle{Files: []File{{Name: "policy.yaml", Data: []byte("approvals: {" + text + "}\n")}}}, nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	p := parse(t, "policy.yaml", "approvals: {"+secret+"}\nnotify: {webhook: {to: 'https://hooks.test/'}}\n")
	if a := p.Settings.Approvals; a.Secret != "/run/secrets/approvals" || a.IsZero() {
		t.Errorf("a webhook may answer: %+v", a)
	}
}
