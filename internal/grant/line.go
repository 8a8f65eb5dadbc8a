package grant

import (
	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/policy"
)

// ParseLine reads the target of a grant.
func ParseLine(kind Kind, target string) (policy.Line, error) {
	if kind == Deny && (target == "" || target[0] != '!') {
		target = "!" + target
	}
	line, err := policy.ParseLine(target, allowlist.Files)
	switch {
	case err != nil:
		return line, fault.New(fault.Usage, "TARGET is an entry as in a policy file: api.example.com, *.example.com, 192.0.2.1:8080, @github", "%w", err)
	case line.Deny && kind == Allow:
		return line, fault.New(fault.Usage, "agent-init deny", "%s denies", line.Text)
	case line.Required:
		return line, fault.New(fault.Usage, "leave the word out", "the word required is for the self-test only")
	}
	if line.Deny {
		line.Text = line.Text[1:]
	}
	return line, nil
}
