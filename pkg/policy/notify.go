package policy

import (
	"errors"
	"net/url"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Notify is whom to tell that a request waits, or was decided.
type Notify struct {
	Command []string `json:"command,omitempty"` // what to run, with the request on its standard input; none: nothing
	Webhook Webhook  `json:"webhook,omitzero"`
}

// Webhook is where the broker posts the same. It is no route: the agent can't ask for it.
type Webhook struct {
	To         string `json:"to"`                   // an https URL; {} stands for the credential
	Credential string `json:"credential,omitempty"` // a file of root's; without a {} it is a bearer token
	Private    bool   `json:"private,omitempty"`    // the host may be a machine of one's own network

	host string
	port Port
}

// URL is where to post, with a credential in its place, and the host that this is. It may be shown to nobody.
func (w Webhook) URL(credential string) (full, host string, err error) {
	full = strings.Replace(w.To, hole, credential, 1)
	u, err := url.Parse(full)
	if err != nil || u.Hostname() != w.host || strings.ContainsFunc(credential, func(r rune) bool { return r <= ' ' || r > '~' || r == '#' }) {
		return "", w.host, errors.New("the credential can't stand in a URL")
	}
	return full, w.host, nil
}

// Fills says whether the credential stands in the URL.
func (w Webhook) Fills() bool { return strings.Contains(w.To, hole) }

const hole = "{}"

func (ps *parser) webhookKeys() []key {
	w := &ps.settings.Notify.Webhook
	return []key{
		{name: "to", read: func(n node) {
			if text, ok := ps.value(n); ok {
				if problem := w.lead(text); problem != "" {
					ps.wrong(n, problem)
				}
			}
		}},
		{name: "credential", read: setting(ps, &w.Credential, pathOf("the credential of a webhook"))},
		{name: "private", read: setting(ps, &w.Private, boolean)},
	}
}

// lead takes in where a webhook goes, or says why it can't.
func (w *Webhook) lead(text string) (problem string) {
	const form = "a webhook is a URL, as in https://hooks.example.com/services/{}"
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.User != nil || u.Fragment != "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return form
	}
	var r Rule
	if f := parseTarget(strings.ToLower(u.Hostname()), &r); f != nil || r.Name == "" || r.Wildcard || r.Name != u.Hostname() {
		return form + ", with the name of a host"
	}
	w.To, w.host, w.port = text, r.Name, HTTPS
	if p := u.Port(); p != "" {
		port, f := parsePort(p)
		if f != nil || port.Proto != TCP {
			return form
		}
		w.port = port
	}
	return ""
}

// webhook is the host of a webhook, for what the broker may reach.
func (ps *parser) webhook(w Webhook) (host *Rule) {
	switch at := ps.set["notify.webhook.to"]; {
	case w.To == "" && w != Webhook{}:
		ps.errs.add(Error{Source: ps.set["notify.webhook.credential"], Text: "webhook", Message: "say where it goes, as in to: https://hooks.example.com/services/{}"})
		return nil
	case w.To == "":
		return nil
	case w.Fills() && w.Credential == "":
		ps.errs.add(Error{Source: at, Text: w.To, Message: "{} stands for a credential: say where it is, as in credential: file:/run/secrets/webhook"})
		return nil
	}
	r := &Rule{Source: ps.set["notify.webhook.to"], Text: w.host, Name: w.host, Ports: []Port{w.port}, routes: true}
	r.Private = w.Private
	return r
}

// notifyCommand reads the arguments of a program of root's. There is no line for the shell: it would be one more place
// where what the agent chose could come to mean something. Nor is PATH searched, which says nothing of whose a file is.
func (ps *parser) notifyCommand(n node) {
	const form = "a command is a list of arguments, and begins with the path of a program, as in [/usr/local/bin/tell]"
	if n.Kind != yaml.SequenceNode {
		ps.wrong(n, form)
		return
	}
	if !ps.once(n.at(), n.name) {
		return
	}
	for i, item := range n.Content {
		text, ok := ps.scalar(n.of(item), "an argument")
		switch {
		case !ok:
		case strings.ContainsRune(text, 0) || i == 0 && (!filepath.IsAbs(text) || filepath.Clean(text) != text):
			ps.wrong(n.of(item), form)
		default:
			ps.settings.Notify.Command = append(ps.settings.Notify.Command, text)
		}
	}
}
