package rig

import (
	"encoding/json"
	"strings"

	"github.com/agent-init/agent-init/internal/lab"
)

// Did runs agent-init as root and fails the test unless it succeeds.
func (w *World) Did(args ...string) string {
	w.Helper()
	r := w.Root(append([]string{"agent-init"}, args...)...)
	if r.Code != 0 {
		w.Fatalf("agent-init %s: %s", strings.Join(args, " "), r)
	}
	return r.Stdout
}

// Refuses runs agent-init as root and fails the test unless it ends with code and a
// remedy, and says all of texts.
func (w *World) Refuses(code int, args []string, texts ...string) {
	w.Helper()
	r := w.Root(append([]string{"agent-init"}, args...)...)
	if r.Code != code || !strings.Contains(r.Stderr, "remedy:") {
		w.Errorf("agent-init %s: want %d and a remedy: %s", strings.Join(args, " "), code, r)
	}
	for _, text := range texts {
		if !strings.Contains(r.Stderr, text) {
			w.Errorf("agent-init %s: does not say %q: %s", strings.Join(args, " "), text, r)
		}
	}
}

// AgentRuns runs agent-init with the agent's credentials.
func (w *World) AgentRuns(args ...string) lab.Result {
	return w.Root(append([]string{"agent-init", "exec", "--", "agent-init"}, args...)...)
}

// Granted is one of what agent-init grants --json prints.
type Granted struct {
	Number                     int
	Kind, Target, Reason, Made string
	UID, Asked                 int
	Outcome                    string
	Saved                      bool
}

func (w *World) Grants() (list []Granted) {
	w.Helper()
	var r struct{ Grants json.RawMessage }
	if err := json.Unmarshal([]byte(w.Did("grants", "--json")), &r); err != nil {
		w.Fatal(err)
	}
	Must(w.T, json.Unmarshal(r.Grants, &list))
	return list
}

// Phase has root enter a phase, and fails the test unless it is proved.
func (w *World) Phase(to string) {
	w.Helper()
	if r := w.Root("agent-init", "phase", to); r.Code != 0 || !strings.Contains(r.Stdout, " -> "+to+"\n") {
		w.Fatalf("phase %s: %s", to, r)
	}
}
