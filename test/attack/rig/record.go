package rig

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// Doctor returns what doctor finds that is not well, by check.
func (w *World) Doctor() (ills map[string]string, code int) {
	w.Helper()
	r := w.Root("agent-init", "doctor", "--json")
	var d struct {
		Findings []struct{ Check, Result, Detail, Fix string }
	}
	if err := json.Unmarshal([]byte(r.Stdout), &d); err != nil {
		w.Fatalf("doctor: %v\n%s", err, r)
	}
	ills = map[string]string{}
	for _, f := range d.Findings {
		if f.Result != "pass" {
			ills[f.Check] += f.Result + ": " + f.Detail + " | " + f.Fix + "\n"
		}
	}
	return ills, r.Code
}

// Says runs agent-init as the agent and fails the test unless it succeeds and
// Says all of texts.
func (w *World) Says(args []string, texts ...string) string {
	w.Helper()
	r := w.AgentRuns(args...)
	if r.Code != 0 {
		w.Errorf("agent-init %v: %s", args, r)
	}
	for _, text := range texts {
		if !strings.Contains(r.Stdout, text) {
			w.Errorf("agent-init %v: want %q in\n%s", args, text, r.Stdout)
		}
	}
	return r.Stdout
}

const AuditFile = "/var/log/agent-init/audit.jsonl"

// WellFormed fails the test unless every line of text is one event of the
// schema, in printable ASCII, and the numbers go up by one.
func WellFormed(t *testing.T, where, text string) {
	t.Helper()
	if text == "" || !strings.HasSuffix(text, "\n") {
		t.Errorf("%s: empty or torn", where)
	}
	last := 0.0
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if i := strings.IndexFunc(line, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
			t.Errorf("%s: byte %#x in %q", where, line[i], line)
		}
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("%s: %v in %q", where, err, line)
			continue
		}
		for field := range e {
			if !slices.Contains([]string{"seq", "time", "event", "verdict", "name", "ip", "port", "proto", "rule", "reason", "by", "uid", "pid", "comm", "suppressed", "prev"}, field) {
				t.Errorf("%s: the field %q in %q", where, field, line)
			}
		}
		if seq, _ := e["seq"].(float64); last != 0 && seq != last+1 {
			t.Errorf("%s: %v follows %v", where, e["seq"], last)
		}
		last, _ = e["seq"].(float64)
	}
}
