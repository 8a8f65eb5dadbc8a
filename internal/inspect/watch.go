package inspect

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
)

// WatchOptions are those of grants --watch.
type WatchOptions struct {
	JSON bool // a line of JSON for each
	Bell bool // ring for each request: a person looks at a terminal
}

// WatchGrants shows what waits for a person, and from then on whatever is asked for, granted, decided or ended, until
// ctx ends or the keeper is gone.
func WatchGrants(ctx context.Context, out io.Writer, o WatchOptions) error {
	dir, err := state.Find()
	if err != nil {
		return state.NotRunning(err)
	}
	return watchGrants(ctx, dir, out, o)
}

func watchGrants(ctx context.Context, dir state.Dir, out io.Writer, o WatchOptions) error {
	file := watched{path: filepath.Join(string(dir), state.GrantsFile)}
	var last []grant.Grant
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for first := true; ; {
		if file.changed() {
			var r grant.Report
			if err := dir.Read(state.GrantsFile, &r); err != nil {
				return state.NotRunning(err)
			}
			for _, n := range newsOf(last, r.Grants) {
				if first && !n.Waits() {
					continue // grants has it
				}
				if err := n.write(out, o); err != nil {
					return err
				}
			}
			last, first = r.Grants, false
		}
		if gone := keeperGone(dir); gone != nil {
			return gone
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// watchedGrant is a line of grants --watch --json: a grant as grants --json has it, and whether it is over.
type watchedGrant struct {
	grant.Grant
	Ended bool `json:"ended,omitempty"`
}

// newsOf are the grants and requests of now that were not in a list before, or not as they are now, and the grants that
// are there no more.
func newsOf(before, now []grant.Grant) (news []watchedGrant) {
	in := func(list []grant.Grant, g grant.Grant) bool {
		return slices.ContainsFunc(list, func(h grant.Grant) bool {
			return h.Number == g.Number && h.Kind == g.Kind && h.Outcome == g.Outcome && h.Made.Equal(g.Made)
		})
	}
	for _, g := range now {
		if !in(before, g) {
			news = append(news, watchedGrant{Grant: g})
		}
	}
	for _, g := range before {
		if g.Kind != grant.Request && !in(now, g) {
			news = append(news, watchedGrant{g, true})
		}
	}
	slices.SortStableFunc(news, func(a, b watchedGrant) int { return a.at().Compare(b.at()) })
	return news
}

// at is when it came to be so; nobody has noted when a grant has ended.
func (g watchedGrant) at() time.Time {
	switch {
	case g.Ended:
		return time.Now()
	case g.Decided != nil:
		return g.Decided.Time
	}
	return g.Made
}

func (g watchedGrant) write(out io.Writer, o WatchOptions) error {
	if o.JSON {
		return text.JSONLine(out, g)
	}
	bell, words := "", fmt.Sprintf("%d %s %s by %s", g.Number, text.Clean(g.Says()), g.Until(g.Made), g.By())
	switch {
	case g.Ended:
		words = fmt.Sprintf("%d ended: %s %s", g.Number, g.Kind, text.Clean(g.Target))
	case g.Outcome != "":
		words = g.Standing()
	case g.Kind == grant.Request:
		if words = fmt.Sprintf("request %d: %s", g.Number, text.Clean(g.Target)); o.Bell {
			bell = "\a"
		}
	}
	if g.Reason != "" && !g.Ended && g.Outcome == "" {
		words += fmt.Sprintf(": %q", text.Clean(g.Reason))
	}
	_, err := fmt.Fprintf(out, "%s%s  %s\n", bell, text.Moment(g.at(), time.Now()), words)
	return err
}
