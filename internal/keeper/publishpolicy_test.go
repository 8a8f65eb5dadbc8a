package keeper

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/policy"
)

// TestPublishedPolicy: what everyone can read decides as what is in force.
func TestPublishedPolicy(t *testing.T) {
	p := listed(t, "ok.example\n@github\n!gist.github.com\ndb.example:5432\n")
	p.Resolv = policy.Resolv{Search: []string{"svc.lab", "lab"}, Ndots: 5}
	path := filepath.Join(t.TempDir(), state.PolicyFile)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := state.WriteRules(f, "/conf", []byte("10.0.0.9 db.example"), p); err != nil {
		t.Fatal(err)
	}
	f.Close()
	got, dir, inbound, err := state.ReadRules(path)
	if err != nil || dir != "/conf" || len(inbound) != 1 || inbound[0] != 3000 {
		t.Fatalf("%v, %q", err, dir)
	}
	for _, name := range []string{"ok.example", "github.com", "gist.github.com", "db.example", "none.example"} {
		for _, port := range []policy.Port{policy.HTTPS, {Proto: policy.TCP, Number: 5432}} {
			a, b := p.Decide(name, port), got.Decide(name, port)
			if a.Allowed != b.Allowed || a.Reason != b.Reason || (a.Rule == nil) != (b.Rule == nil) || a.Rule != nil && a.Rule.Source.String() != b.Rule.Source.String() {
				t.Errorf("%s %v: %+v and %+v", name, port, a, b)
			}
		}
	}
	if !slices.Equal(got.Asked("db"), p.Asked("db")) || len(got.Asked("db")) != 3 {
		t.Errorf("db is asked for as %v", got.Asked("db"))
	}
	if len(got.Hosts("db.example")) != 1 {
		t.Error("the hosts file is lost")
	}
}
