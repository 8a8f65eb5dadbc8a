package container

import (
	"errors"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/policy"
)

// ReadFault is the fault of a policy that can't be read, or trusted.
func ReadFault(err error) error {
	var file *policy.FileError
	if errors.As(err, &file) {
		return fault.New(fault.Policy, file.Remedy, "%s", file.What())
	}
	return fault.New(fault.Policy, "check the path", "read the policy: %w", err)
}
