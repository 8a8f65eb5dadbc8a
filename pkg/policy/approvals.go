package policy

import (
	"path/filepath"
	"time"
)

// Approvals is how people who are not in the container decide about requests.
type Approvals struct {
	Secret    string `json:"secret,omitempty"`    // a file of root's with the key of their answers; none: nobody can
	Directory string `json:"directory,omitempty"` // where answers come as files
	Most      ttl    `json:"most"`                // for how long they may grant at most
	Hold      ttl    `json:"hold,omitempty"`      // the first question for a name waits for them; 0: it does not
}

// IsZero says whether nobody far away decides anything.
func (a Approvals) IsZero() bool { return a.Secret == "" && a.Hold == 0 }

const none = "none" // as a default is written

// longestHold is for how long a packet filter knows whose a question is (nf_conntrack_udp_timeout).
const longestHold = 30 * time.Second

func (ps *parser) approvalKeys() []key {
	a := &ps.settings.Approvals
	return []key{
		{name: "secret", read: setting(ps, &a.Secret, func(key, text string) (string, string) {
			if text == none {
				return "", ""
			}
			return pathOf("the secret of approvals")(key, text)
		})},
		{name: "directory", read: setting(ps, &a.Directory, func(_, text string) (string, string) {
			if text == none {
				return "", ""
			}
			if !filepath.IsAbs(text) || filepath.Clean(text) != text || text == "/" {
				return "", "a directory is the path of one, as in /run/approvals"
			}
			return text, ""
		})},
		{name: "most", read: setting(ps, &a.Most, span(time.Second, 24*time.Hour))},
		{name: "hold", read: setting(ps, &a.Hold, func(key, text string) (ttl, string) {
			if text == "0s" || text == "0" {
				return 0, ""
			}
			return span(time.Second, longestHold)(key, text)
		})},
	}
}

// checkApprovals says what is missing for an answer to come from anywhere.
func (ps *parser) checkApprovals() {
	a := ps.settings.Approvals
	wrong := func(name, text, message string) {
		ps.errs.add(Error{Source: ps.set["approvals."+name], Text: text, Message: message})
	}
	switch {
	case a.Secret == "" && a.Directory != "":
		wrong("directory", a.Directory, "answers are signed: say where the key is, as in secret: file:/run/secrets/approvals")
	case a.Secret != "" && a.Directory == "" && ps.settings.Notify.Webhook.To == "":
		wrong("secret", a.Secret, "no answer can come: say a directory, or a webhook of notify, which may answer")
	}
}
