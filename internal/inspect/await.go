package inspect

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/policy"
)

// lookEvery is how often a reader looks whether a published file was replaced. It costs nobody else anything.
const lookEvery = 200 * time.Millisecond

// Propose asks the guard to have target booked as a request.
func Propose(ctx context.Context, target, reason string) (out grant.Proposed, err error) {
	err = ask.Call(ctx, ask.RequestSocket, control.Request{Verb: ask.Request, Target: target, Reason: reason}, &out)
	return out, err
}

// Await waits until what was proposed is decided, or ctx ends, and returns it with what became of it. Only reading
// what the keeper publishes, it may be called by anybody, and as often as anybody likes.
func Await(ctx context.Context, p grant.Proposed) (grant.Proposed, error) {
	if p.Number == 0 { // it is allowed already
		p.Outcome = grant.WasGranted
		return p, nil
	}
	dir, err := state.Find()
	if err != nil {
		return p, state.NotRunning(err)
	}
	return await(ctx, dir, p)
}

func await(ctx context.Context, dir state.Dir, p grant.Proposed) (grant.Proposed, error) {
	grants, rules := watched{path: filepath.Join(string(dir), state.GrantsFile)}, watched{path: filepath.Join(string(dir), state.PolicyFile)}
	w := awaited{Proposed: p}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if grants.changed() {
			var r grant.Report
			if err := dir.Read(state.GrantsFile, &r); err != nil {
				return w.Proposed, state.NotRunning(err)
			}
			if w.look(r.Grants) {
				w.Allowed = ""
				return w.Proposed, nil
			}
		}
		if w.Allowed != "" {
			w.Outcome = grant.WasGranted
			return w.Proposed, nil
		}
		if rules.changed() { // the grants are published after it: they have one more look to say who decided
			w.Allowed = w.allowedNow(rules.path)
		}
		if gone := keeperGone(dir); gone != nil {
			return w.Proposed, gone
		}
		select {
		case <-ctx.Done():
			w.Outcome = grant.StillWaits
			return w.Proposed, nil
		case <-tick.C:
		}
	}
}

// keeperGone says that nobody will decide anything any more.
func keeperGone(dir state.Dir) error {
	var s state.State
	err := dir.Read(state.StatusFile, &s)
	if err == nil && s.Keeper.Alive() && s.Phase == state.PhaseReady {
		return nil
	}
	return fault.New(fault.Failure, "see agent-init status", "the keeper is gone, and the request with it")
}

// awaited is a request that somebody waits for.
type awaited struct {
	grant.Proposed
	made time.Time // when it was booked; zero until it was seen
}

// look finds the request among grants, and says whether it is decided.
func (w *awaited) look(grants []grant.Grant) (over bool) {
	i := slices.IndexFunc(grants, func(g grant.Grant) bool {
		return g.Kind == grant.Request && g.Number == w.Number && g.Target == w.Target && (w.made.IsZero() || g.Made.Equal(w.made))
	})
	if i < 0 { // a disk that was full may have it not yet; once it was seen, a keeper that came after has no memory of it
		if !w.made.IsZero() {
			w.Outcome = grant.WasForgotten
		}
		return !w.made.IsZero()
	}
	g := grants[i]
	w.made, w.Outcome, w.Decided = g.Made, g.Outcome, g.Decided
	if w.Outcome == grant.WasGranted {
		for _, a := range grants {
			if a.Kind == grant.Allow && (a.Number == g.Number || a.Target == g.Target) {
				w.Expires = a.Expires
			}
		}
	}
	return w.Outcome != ""
}

// allowedNow says which rule of the policy in the file allows the target by itself: files were edited, or a wider grant
// was made, and nobody will look at the request again.
func (w *awaited) allowedNow(file string) (rule string) {
	if strings.ContainsAny(w.Target, "*@/ ") {
		return "" // it may be allowed in part
	}
	p, _, _, err := state.ReadRules(file)
	s, wrong := parseSubject(w.Target)
	if err != nil || wrong != nil || s.name == "" {
		return ""
	}
	if d := p.Decide(s.name, cmp.Or(s.port, policy.HTTPS)); d.Allowed && d.Rule != nil {
		return d.Rule.Source.String()
	}
	return ""
}

// watched is a published file, which is replaced when it changes.
type watched struct {
	path string
	last os.FileInfo
}

// changed says whether the file is another than at the last look; the first one finds it new.
func (w *watched) changed() bool {
	now, err := os.Stat(w.path)
	if errors.Is(err, fs.ErrNotExist) {
		was := w.last != nil
		w.last = nil
		return was
	}
	if err != nil || w.last != nil && os.SameFile(w.last, now) && w.last.ModTime().Equal(now.ModTime()) && w.last.Size() == now.Size() {
		return false
	}
	w.last = now
	return true
}
