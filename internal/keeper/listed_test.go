package keeper

import (
	"testing"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/pkg/policy"
)

// listed is the policy of an allowlist, in a container that has a hosts file and lets port 3000 in.
func listed(t *testing.T, list string) *policy.Policy {
	t.Helper()
	files := []policy.File{{Name: "policy.yaml", Data: []byte("inbound: [3000]\n")}, {Name: "allowlist.txt", Data: []byte(list)}}
	p, err := policy.Parse(&policy.Bundle{Files: files, Hosts: []byte("10.0.0.9 db.example")}, allowlist.Files)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
