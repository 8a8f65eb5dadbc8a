package keeper

import (
	"testing"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/pkg/policy"
)

// listed is the policy of an allowlist, in a container that has a hosts file.
func listed(t *testing.T, list string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "allowlist.txt", Data: []byte(list)}}, Hosts: []byte("10.0.0.9 db.example")}, allowlist.Files)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
