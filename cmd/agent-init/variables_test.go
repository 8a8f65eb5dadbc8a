package main

import (
	"testing"

	"github.com/agent-init/agent-init/internal/fault"
)

// TestVariables: a variable that would change nothing stops the start, and what
// Kubernetes sets for a service of the name does not.
func TestVariables(t *testing.T) {
	for name, want := range map[string]string{
		"AGENT_INIT_SELFTEST":              "",
		"AGENT_INIT_LOG_LEVEL":             "",
		"AGENT_INIT_UNSAFE_NO_FIREWALL":    "",
		"AGENT_SESSION":                    "",
		"AGENT_INIT_SERVICE_HOST":          "",
		"AGENT_INIT_SERVICE_PORT":          "",
		"AGENT_INIT_SERVICE_PORT_HTTPS":    "",
		"AGENT_INIT_PORT":                  "",
		"AGENT_INIT_WEB_PORT_443_TCP_ADDR": "",
		"AGENT_INIT_SELFTST":               "did you mean AGENT_INIT_SELFTEST?",
		"AGENT_INIT_LOGLEVEL":              "did you mean AGENT_INIT_LOG_LEVEL?",
		"AGENT_INIT_ALLOWED":               "did you mean AGENT_INIT_ALLOW?",
		"AGENT_INIT_INBOUND":               "",
		"AGENT_INIT_TOKEN":                 "unset it, or give it another name; agent-init run --help lists the settings",
	} {
		err := checkVariables(map[string]string{name: "3000"})
		switch f, ok := err.(*fault.Fault); {
		case want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case want != "" && (!ok || f.Code != fault.Usage || f.Remedy != want):
			t.Errorf("%s: %+v", name, err)
		}
	}
}
