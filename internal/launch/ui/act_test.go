package ui

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestAnswers: what a person says becomes agent-init's own words, about what they saw and nothing else.
func TestAnswers(t *testing.T) {
	r := ready(t)
	said := func(container, number, target, answer string) answered {
		return r.send(r.request("POST", "/api/answer", `{"container":"`+container+`","number":`+number+`,"target":"`+target+`","answer":"`+answer+`"}`))
	}
	for _, c := range []struct {
		container, number, target, answer string
		status                            int
		told                              string
	}{
		{one, "7", "a.example", "10m", 200, one + " allow --request 7 --for 10m -- a.example\n"},
		{one, "7", "a.example", "1h", 200, one + " allow --request 7 --for 1h -- a.example\n"},
		{one, "7", "a.example", "start", 200, one + " allow --request 7 --for start -- a.example\n"},
		{one, "7", "a.example", "save", 200, one + " allow --request 7 --save -- a.example\n"},
		{one, "7", "a.example", "end", 200, one + " grants --end 7\n"},
		{one, "7", "b.example", "10m", 409, ""}, // the container started anew, and 7 is another one
		{one, "8", "a.example", "10m", 409, ""},
		{two, "7", "a.example", "10m", 409, ""},
		{strings.Repeat("3", 64), "7", "a.example", "10m", 404, ""},
		{one, "7", "a.example", "24h", 400, ""},
		{one, "7", "a.example", "--save", 400, ""},
		{one, "-7", "a.example", "10m", 400, ""},
	} {
		r.put("calls", "")
		if a := said(c.container, c.number, c.target, c.answer); a.status != c.status {
			t.Errorf("%+v: %d %s", c, a.status, a.body)
		}
		if got := r.calls(); got != c.told {
			t.Errorf("%+v: the engine was told %q", c, got)
		}
	}
	if a := said(one, "7", "a.example", "10m"); !strings.Contains(a.body, "warning: it was asked for") {
		t.Errorf("the warning is lost: %s", a.body)
	}
	r.put("calls", "")
	r.asks(one, 9, "a.example\u202e", "") // on a screen it would look like another
	r.fleetUntil(func(v fleetView) bool { return has(v, 9) })
	if a := said(one, "9", "a.example?", "10m"); a.status != http.StatusConflict || r.calls() != "" {
		t.Errorf("%d %s, the engine was told %q", a.status, a.body, r.calls())
	}
	if a := said(one, "9", "a.example?", "end"); a.status != http.StatusOK {
		t.Errorf("it can't be turned down: %d %s", a.status, a.body)
	}
}

// TestNoMeansWhatWasSeen: a container that starts anew counts anew, so that the number of a request may be that of a denial
// by the time somebody turns the request down. The page does not know of it yet.
func TestNoMeansWhatWasSeen(t *testing.T) {
	r := ready(t)
	r.server.fleet.mu.Lock()
	r.server.fleet.begun = time.Now().Add(time.Hour) // nobody looks meanwhile
	r.server.fleet.mu.Unlock()
	for _, now := range []string{
		`{"number":7,"kind":"deny","target":"evil.example","saved":true}`,
		`{"number":7,"kind":"deny","target":"a.example","saved":true}`,
		`{"number":7,"kind":"request","target":"a.example","made":"2026-01-02T03:04:05Z","outcome":"turned down"}`,
	} {
		r.put(one+".grants", `{"version":1,"grants":[`+now+`]}`)
		if a := r.send(r.request("POST", "/api/answer", `{"container":"`+one+`","number":7,"target":"a.example","answer":"end"}`)); a.status != http.StatusConflict {
			t.Errorf("%s: %d %s", now, a.status, a.body)
		}
	}
	if got := r.calls(); strings.Contains(got, "--end") {
		t.Errorf("the engine was told %q", got)
	}
}

// fleetUntil asks until the page would show something.
func (r *rig) fleetUntil(there func(fleetView) bool) {
	r.t.Helper()
	for i := 0; ; i++ {
		if there(r.fleet()) {
			return
		}
		if i > 10000 {
			r.t.Fatalf("it is never shown: %+v", r.fleet())
		}
		r.server.fleet.forget()
	}
}

func has(v fleetView, number uint32) bool {
	for _, c := range v.Containers {
		for _, g := range c.Grants {
			if g.Number == number {
				return true
			}
		}
	}
	return false
}

// TestOneContainerHoldsUpNobody, whatever it prints or doesn't.
func TestOneContainerHoldsUpNobody(t *testing.T) {
	for name, printed := range map[string]string{
		"no JSON": "<html>", "another shape": `{"grants":{"a":1}}`, "nothing": "", "a number too large": `{"grants":[{"number":99999999999}]}`,
		"more than anybody reads": `{"grants":[` + strings.Repeat(" ", maxPrinted) + `]}`,
		"a year of none":          `{"grants":[{"number":1,"made":"99999-01-01T00:00:00Z"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.put(one+".grants", printed)
			r.asks(two, 5, "b.example", "")
			r.enter()
			r.fleetUntil(func(v fleetView) bool { return has(v, 5) })
			v := r.fleet()
			if len(v.Containers) != 2 {
				t.Fatalf("%+v", v)
			}
			for _, c := range v.Containers {
				if (c.Fault != "") != (c.ID == one) {
					t.Errorf("%s: %q", c.Name, c.Fault)
				}
			}
		})
	}
}

// TestStart asks the engine as launch does in a terminal.
func TestStart(t *testing.T) {
	r := newRig(t)
	r.enter()
	dir := t.TempDir()
	start := func(agent, dir string) answered {
		in, err := json.Marshal(map[string]any{"agent": agent, "dir": dir, "worktree": "", "allow": []string{"a.example"}})
		if err != nil {
			t.Fatal(err)
		}
		return r.send(r.request("POST", "/api/start", string(in)))
	}
	a := start("claude", dir)
	var said struct{ Name string }
	if err := json.Unmarshal([]byte(a.body), &said); err != nil || a.status != http.StatusOK || !strings.HasPrefix(said.Name, "claude-") {
		t.Fatalf("%d %s", a.status, a.body)
	}
	told := r.calls()
	for _, want := range []string{"run -d", "--cap-drop=ALL", "--name=" + said.Name, "a.example", dir + ":/workspace", said.Name + " wait\n"} {
		if !strings.Contains(told, want) {
			t.Errorf("the engine was not told %q:\n%s", want, told)
		}
	}
	r.put("calls", "")
	r.containers(map[string]string{one: said.Name})
	for _, c := range [][2]string{{"claude", dir}, {"claude", "."}, {"claude", dir + "/none"}, {"--help", dir}, {"codex", dir}} {
		if a := start(c[0], c[1]); a.status < 400 || strings.Contains(r.calls(), "run ") {
			t.Errorf("%q: %d %s, the engine was told %q", c, a.status, a.body, r.calls())
		}
	}
}
