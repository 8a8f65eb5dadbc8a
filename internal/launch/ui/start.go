package ui

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"time"

	"github.com/agent-init/agent-init/internal/launch"
)

// startTime is how long a container may take until it is confined. Its policy may wait for a name.
const startTime = 2 * time.Minute

// wish is what the page's form asks for. It takes no key and no variable: those stand in the environment of launch.
type wish struct {
	Agent    string   `json:"agent"`
	Dir      string   `json:"dir"`
	Worktree string   `json:"worktree"`
	Allow    []string `json:"allow"`
}

// start starts an agent in the background, and answers once it is confined.
func (s *Server) start(w http.ResponseWriter, r *http.Request) {
	var in wish
	if !body(w, r, &in) {
		return
	}
	if !filepath.IsAbs(in.Dir) {
		fail(w, http.StatusBadRequest, "write the directory's whole path, from its root")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), startTime)
	defer cancel()
	name, notes, err := s.begin(ctx, in)
	s.fleet.forget()
	if err != nil {
		fail(w, http.StatusBadGateway, err.Error())
		return
	}
	reply(w, map[string]any{"name": clean(name, maxName), "notes": notes})
}

func (s *Server) begin(ctx context.Context, in wish) (name string, notes []string, err error) {
	p, err := s.engine.Plan(ctx, launch.Options{Agent: in.Agent, Dir: in.Dir, Worktree: in.Worktree, Allow: in.Allow, Detach: true},
		launch.HostOf(ctx, s.env, s.engine))
	if err != nil {
		return "", nil, err
	}
	there, err := s.engine.Occupant(ctx, p)
	switch {
	case err != nil:
		return "", nil, err
	case there != nil:
		return "", nil, errors.New(p.Name + " is there already: attach to it, or name a worktree")
	}
	if err := p.Start(ctx); err != nil {
		return "", nil, err
	}
	for _, n := range p.Notes {
		notes = append(notes, clean(n, maxText))
	}
	if _, _, err := run(ctx, s.engine, p.Name, startTime, "wait"); err != nil {
		return "", nil, errors.New(p.Name + " did not come up: start it in a terminal, which shows why")
	}
	return p.Name, notes, nil
}
