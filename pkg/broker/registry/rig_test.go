package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/route"
)

// today is when all tests take place.
var today = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func ago(days float64) string {
	return today.Add(-time.Duration(days * 24 * float64(time.Hour))).Format("2006-01-02T15:04:05.000Z")
}

// server is what a registry's servers have, by To and path.
type server struct {
	mu    sync.Mutex
	docs  map[string]Document
	asked []string
}

func (s *server) ask(_ context.Context, q Question) (*Document, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, q.Method+" "+q.To+q.Path)
	d, ok := s.docs[q.To+q.Path]
	if !ok {
		return &Document{Status: 404, Type: "text/plain", Body: []byte("not found")}, nil
	}
	if d.Status == 0 {
		d.Status = 200
	}
	if q.Method == "HEAD" {
		d.Body = nil
	}
	d.Body = bytes.Clone(d.Body)
	return &d, nil
}

// rig is a registry of one kind with rules.
type rig struct {
	*Registry
	*server
	t *testing.T
}

func newRig(t *testing.T, kind string, p route.Packages, docs map[string]Document) *rig {
	return newMirror(t, kind, "", p, docs)
}

// newMirror is newRig of a server of one's own; "": the usual one.
func newMirror(t *testing.T, kind, to string, p route.Packages, docs map[string]Document) *rig {
	r, ok := route.Builtin(kind)
	if !ok {
		t.Fatalf("there is no route %s", kind)
	}
	p.Registry = kind
	if r.Packages = p; to != "" {
		r.To = to
	}
	g := New(&r)
	g.now = func() time.Time { return today }
	return &rig{g, &server{docs: docs}, t}
}

// get is what a client gets: a document's text, or "file TO PATH", or "STATUS-WORD: text" of a refusal.
func (r *rig) get(path string, how ...string) string {
	q := Request{Path: r.Spelled(path), Base: "http://127.0.0.1:8137/" + r.name, Agent: "pnpm/10"}
	for _, h := range how {
		if strings.Contains(h, "/vnd.") || strings.HasPrefix(h, "text/") {
			q.Accept = h
		} else {
			q.Agent = h
		}
	}
	a, err := r.Answer(context.Background(), q, r.server.ask)
	var refused *judge.Refusal
	switch {
	case errors.As(err, &refused):
		return refused.What + ": " + refused.Text
	case err != nil:
		return "error: " + err.Error()
	case a.File != nil:
		return "file " + a.File.To + a.File.Path
	case a.Status != 200:
		return fmt.Sprintf("%d %s", a.Status, joined(a.Body))
	}
	return string(joined(a.Body))
}

// want holds what a client gets: all of it, or how it begins if that ends in an ellipsis.
func (r *rig) want(path, want string, how ...string) {
	r.t.Helper()
	got := r.get(path, how...)
	prefix, open := strings.CutSuffix(want, "…")
	if got != want && !(open && strings.HasPrefix(got, prefix)) {
		r.t.Errorf("%s:\n got %s\nwant %s", path, got, want)
	}
}

func days3() route.Packages { return route.Packages{MinAge: 72 * time.Hour} }
