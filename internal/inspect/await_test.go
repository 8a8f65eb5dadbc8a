package inspect

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
)

// publishing is a directory that a keeper of the test's own process publishes in.
type publishing struct {
	*testing.T
	state.Dir
}

func newPublishing(t *testing.T, policy string) publishing {
	p := publishing{t, state.Dir(t.TempDir())}
	p.status(state.State{Phase: state.PhaseReady})
	p.grants()
	p.policy(policy)
	return p
}

func (p publishing) ok(err error) {
	p.Helper()
	if err != nil {
		p.Error(err)
	}
}

func (p publishing) status(s state.State) {
	s.Keeper = state.Self()
	p.ok(p.Write(state.StatusFile, 0o644, s))
}

func (p publishing) grants(list ...grant.Grant) {
	p.ok(p.Write(state.GrantsFile, 0o644, grant.Report{Version: 1, Grants: list}))
}

func (p publishing) policy(text string) {
	p.ok(p.WriteWith(state.PolicyFile, 0o644, func(w io.Writer) error {
		return state.WriteRules(w, "/etc/agent-init", nil, parsePolicy(p.T, text))
	}))
}

// TestAwait: who waits learns what became of its own request, whatever else happens.
func TestAwait(t *testing.T) {
	request := grant.Grant{Number: 3, Kind: grant.Request, Target: "new.example", Made: noon, Asked: 1}
	decided := func(o grant.Outcome, why string) grant.Grant {
		g := request
		if g.Outcome = o; o != grant.WasForgotten {
			g.Decided = &grant.Decision{Time: noon, Reason: why}
		}
		return g
	}
	granted := grant.Grant{Number: 3, Kind: grant.Allow, Target: "new.example", Made: noon, Expires: noon.Add(10 * time.Minute)}
	for name, c := range map[string]struct {
		then func(publishing)
		says string
		code int
	}{
		"granted":          {func(p publishing) { p.grants(granted, decided(grant.WasGranted, "one build")) }, `request 3: new.example was granted for 10m: "one build"`, fault.OK},
		"turned down":      {func(p publishing) { p.grants(decided(grant.WasTurnedDown, "use the mirror")) }, `request 3: new.example was turned down: "use the mirror"`, fault.TurnedDown},
		"denied":           {func(p publishing) { p.grants(decided(grant.WasDenied, "")) }, "request 3: new.example was denied", fault.Denied},
		"forgotten":        {func(p publishing) { p.grants(decided(grant.WasForgotten, "")) }, "request 3: new.example was forgotten", fault.Forgotten},
		"a wider entry":    {func(p publishing) { p.policy("domains: [new.example]") }, "request 3: new.example is allowed now, by policy.yaml:1", fault.OK},
		"a hostile reason": {func(p publishing) { p.grants(decided(grant.WasTurnedDown, "a\u202eb\x1b]0;c\a")) }, `request 3: new.example was turned down: "a?b?]0;c?"`, fault.TurnedDown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPublishing(t, "domains: [ok.test]")
			p.grants(request)
			time.AfterFunc(2*lookEvery, func() { c.then(p) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got, err := await(ctx, p.Dir, grant.Proposed{Version: 1, Number: 3, Target: "new.example"})
			if err != nil || got.Says(noon) != c.says || got.Code() != c.code {
				t.Errorf("%q, %d, %v; want %q, %d", got.Says(noon), got.Code(), err, c.says, c.code)
			}
		})
	}
}

// TestAwaitForgotten: a request that was there and is not any more is forgotten, also where another has its number since:
// a keeper that was started again has no memory of it. One that is not there yet is waited for.
func TestAwaitForgotten(t *testing.T) {
	request := grant.Grant{Number: 3, Kind: grant.Request, Target: "new.example", Made: noon, Asked: 1}
	later, other := request, request
	later.Made, other.Target = noon.Add(time.Hour), "other.example"
	for name, list := range map[string][]grant.Grant{"gone": nil, "later": {later}, "other": {other}} {
		w := awaited{Proposed: grant.Proposed{Number: 3, Target: "new.example"}}
		if w.look(nil) || w.look([]grant.Grant{other}) || w.look([]grant.Grant{request}) {
			t.Errorf("%s: it is over: %+v", name, w.Proposed)
		}
		if !w.look(list) || w.Says(noon) != "request 3: new.example was forgotten" || w.Code() != fault.Forgotten {
			t.Errorf("%s: %+v", name, w.Proposed)
		}
	}
}

// TestAwaitGivesUp: a time that is over is no decision, and without a keeper nobody waits for one.
func TestAwaitGivesUp(t *testing.T) {
	p := newPublishing(t, "domains: [ok.test]")
	p.grants(grant.Grant{Number: 4, Kind: grant.Request, Target: "other.example", Outcome: grant.WasGranted, Made: noon})
	ctx, cancel := context.WithTimeout(t.Context(), 2*lookEvery)
	defer cancel()
	proposed := grant.Proposed{Version: 1, Number: 4, Target: "new.example"}
	got, err := await(ctx, p.Dir, proposed)
	if err != nil || got.Outcome != grant.StillWaits || got.Code() != fault.TimedOut {
		t.Errorf("%+v, %v", got, err)
	}
	p.status(state.State{Phase: state.PhaseEnded})
	if got, err = await(t.Context(), p.Dir, proposed); err == nil || fault.Report(&bytes.Buffer{}, err) != fault.Failure {
		t.Errorf("%+v, %v", got, err)
	}
}
