package main

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/lab/golden"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// goldenOf holds what --json of each command prints.
var goldenOf = map[string]string{
	"status":   "testdata/status.golden.json",
	"selftest": "../../pkg/selftest/testdata/passed.golden.json",
	"check":    "../../internal/inspect/testdata/check.golden.json",
	"explain":  "../../internal/inspect/testdata/explain.golden.json",
	"suggest":  "../../internal/inspect/testdata/suggest.golden.json",
	"allow":    "testdata/granted.golden.json",
	"deny":     "testdata/granted.golden.json",
	"request":  "testdata/proposed.golden.json",
	"grants":   "testdata/grants.golden.json",
	"phase":    "testdata/phase.golden.json",
	"sessions": "../../internal/window/client/testdata/sessions.golden.json",
	"top":      "../../internal/top/testdata/shown.golden.json",
	"report":   "../../internal/report/testdata/report.golden.json",
	"doctor":   "../../internal/inspect/testdata/doctor.golden.json",
	"launch":   "../../internal/launch/cli/testdata/list.golden.json",
	"log":      "../../internal/inspect/testdata/verify.golden.json", // without --verify: pkg/audit/testdata
}

// TestEveryJSONIsHeld: what programs read has a version, and a file that holds it.
func TestEveryJSONIsHeld(t *testing.T) {
	for _, c := range visible() {
		fs := c.flagSet(new(environment))
		file, held := goldenOf[c.name]
		if has := fs.Lookup("json") != nil; has != held {
			t.Errorf("%s: --json: %v, held by a file: %v", c.name, has, held)
		}
		if file == "" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		var v struct {
			Version int `json:"version"`
		}
		if err := json.Unmarshal(data, &v); err != nil || v.Version == 0 {
			t.Errorf("%s: %s has no version (%v)", c.name, file, err)
		}
	}
}

func TestJSONGolden(t *testing.T) {
	expires := noon.Add(time.Hour)
	for file, v := range map[string]any{
		"granted.golden.json": grant.Granted{Version: 1, Grant: grant.Grant{Number: 2, Kind: grant.Allow, Target: "a.example", Reason: "why", PID: 7, Made: noon, Expires: expires},
			Replaced: []grant.Grant{{Number: 1, Kind: grant.Deny, Target: "a.example", Made: noon}}, Warnings: []string{"has no effect"}},
		"proposed.golden.json": grant.Proposed{Version: 1, Number: 3, Target: "a.example", Allowed: "allowlist.txt:7", Outcome: grant.WasGranted, Expires: expires,
			Decided: &grant.Decision{Time: noon, Reason: "one build"}},
		"phase.golden.json": ask.PhaseChange{Version: 1, Phase: policy.Sealed, Was: policy.Setup, Fault: "the self-test failed: a.example", Proof: &selftest.Report{Version: 1}},
	} {
		golden.JSON(t, file, v)
	}
}

func TestStatusGolden(t *testing.T) {
	s := goldenState()
	golden.JSON(t, "status.golden.json", state.Report{Healthy: true, State: &s})
}

func TestGrantsGolden(t *testing.T) {
	golden.JSON(t, "grants.golden.json", grant.Report{Version: 1, Grants: []grant.Grant{
		{Number: 1, Kind: grant.Allow, Target: "a.example", Reason: "why", Made: noon, Expires: noon.Add(time.Minute), PID: 7},
		{Number: 2, Kind: grant.Deny, Target: "b.example", Made: noon},
		{Number: 3, Kind: grant.Request, Target: "c.example", UID: 1000, PID: 9, Made: noon, Expires: noon.Add(time.Hour), Asked: 2},
		{Number: 4, Kind: grant.Request, Target: "d.example", UID: 1000, PID: 9, Made: noon, Asked: 1, Outcome: "turned down", Decided: &grant.Decision{Time: noon, UID: 0, Reason: "use the mirror"}},
	}})
}
