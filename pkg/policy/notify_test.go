package policy

import (
	"strings"
	"testing"
)

// TestNotify: a command is a program's path, and a webhook goes to a host by its name, over TLS.
func TestNotify(t *testing.T) {
	for text, want := range map[string]string{
		"command: [/usr/local/bin/tell, --room, '']": "",
		"command: []":                               "",
		"command: tell":                             "begins with the path of a program",
		"command: [tell]":                           "begins with the path of a program",
		"command: [/a/../tell]":                     "begins with the path of a program",
		"command: [\"/a\\0b\"]":                     "begins with the path of a program",
		"webhook: {to: 'https://hooks.test/a?b=c'}": "",
		"webhook: {to: 'https://hooks.test:8443/{}', credential: 'file:/run/secrets/hook', private: true}": "",
		"webhook: {to: 'https://hooks.test/{}'}":                                                           "{} stands for a credential",
		"webhook: {credential: 'file:/run/secrets/hook'}":                                                  "say where it goes",
		"webhook: {to: https://hooks.test/, credential: /run/secrets/hook}":                                "file:/PATH",
		"webhook: {to: https://hooks.test/, credential: env:HOOK}":                                         "file:/PATH",
		"webhook: {to: http://hooks.test/}":                                                                "a webhook is a URL",
		"webhook: {to: 'https://192.0.2.1/'}":                                                              "with the name of a host",
		"webhook: {to: 'https://{}/'}":                                                                     "a webhook is a URL",
		"webhook: {to: 'https://*.hooks.test/'}":                                                           "with the name of a host",
		"webhook: {to: 'https://a:b@hooks.test/'}":                                                         "a webhook is a URL",
		"webhook: {to: 'https://hooks.test/#a'}":                                                           "a webhook is a URL",
		"webhook: {to: 'https://hooks.test:0/'}":                                                           "a webhook is a URL",
		"webhook: {url: https://hooks.test/}":                                                              "unknown key",
	} {
		p, err := Parse(&Bundle{Files: []File{{Name: "policy.yaml", Data: []byte("notify: {" + text + "}\n")}}}, nil)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		case want == "" && p.Settings.Notify.Webhook.To != "" && (p.Broker == nil || !p.Broker.Lookup("hooks.test").Allowed || p.Lookup("hooks.test").Allowed || len(p.Settings.Broker) > 0):
			t.Errorf("%s: the broker alone is to reach the host, by no route", text)
		}
	}
}

// TestWebhookURL: a credential fills its place, and leads to no other host.
func TestWebhookURL(t *testing.T) {
	var w Webhook
	if problem := w.lead("https://hooks.test/services/{}"); problem != "" {
		t.Fatal(problem)
	}
	if full, host, err := w.URL("T0/B0/x-y_z"); full != "https://hooks.test/services/T0/B0/x-y_z" || host != "hooks.test" || err != nil {
		t.Error(full, host, err)
	}
	for _, bad := range []string{"a b", "a\nb", "a#b", "é", "%zz"} {
		if full, _, err := w.URL(bad); err == nil {
			t.Errorf("%q makes %s", bad, full)
		} else if strings.Contains(err.Error(), bad) {
			t.Errorf("the error has the credential: %v", err)
		}
	}
}
