package grants

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// topFrame is what agent-init top --json prints, as far as tests look at it.
type topFrame struct {
	State       string
	Healthy     bool
	Operator    bool
	Counted     bool
	Unseen      []string
	Connections []topConnection
	Refused     []struct {
		Name, Line, Process string
		Count               int
	}
	Asked    []struct{ Name string }
	Requests []struct{ Target string }
	Ending   []struct{ Name string }
	Parts    []struct {
		Name  string
		Bytes int
	}
}

type topConnection struct {
	Name, Remote, Proto, Way, Process string
	PID                               int
	UID                               int
	Out                               uint64  `json:"bytes_out"`
	In                                uint64  `json:"bytes_in"`
	InRate                            float64 `json:"in_per_second"`
}

func top(w *rig.World, as func(...string) lab.Result) (f topFrame) {
	w.Helper()
	r := as("top", "--json", "--every", "300ms")
	if err := json.Unmarshal([]byte(r.Stdout), &f); r.Code != 0 || err != nil {
		w.Fatalf("top: %v: %s", err, r)
	}
	return f
}

func (f topFrame) to(name string) topConnection {
	i := slices.IndexFunc(f.Connections, func(c topConnection) bool { return c.Name == name || c.Remote == name })
	if i < 0 {
		return topConnection{}
	}
	return f.Connections[i]
}

// TestTop: each connection of the agent's is shown once, with its name, its way, its process and its bytes as they
// grow, and nothing of agent-init's own. The agent sees the same but for the bytes, which only root is told.
func TestTop(t *testing.T) {
	l := rig.NewLab(t)
	s := rig.NewStreams()
	for _, host := range []string{"ok.test", "ok2.test", "api.test"} {
		l.Web.Handle(host, s)
	}
	l.DNS.SetAddrs("api.test", "45.30.50.7")
	w := &rig.Brokered{World: rig.ConfineIn(t, l, "ok.test\nok2.test direct\n45.30.9.9:8443\napi.test GET /**\n", lab.BoxOptions{Files: []lab.File{
		rig.Settings("broker:\n  anthropic:\n    credential: file:/run/secrets/anthropic\n"),
		{Path: "/run/secrets/anthropic", Data: []byte(rig.BrokerKey), Mode: 0o400}, {Path: rig.Bundle, Data: l.CA.PEM}}})}
	// The broker ends a connection on which nothing is asked; the shell makes another.
	u, err := url.Parse(w.Variable("ANTHROPIC_BASE_URL"))
	rig.Must(t, err)
	at := u.Hostname() + "/" + u.Port()
	w.Launch("bash", "-c", "while exec 3<>/dev/tcp/"+at+"; do sleep 2; done")
	w.Follow(s, "https://ok.test", "http://ok.test", "https://ok2.test")
	w.AsAgent(w.Box, "tcp", "-hold", "10m", "45.30.9.9:8443")
	w.AsAgent(w.Box, "stream", "https://api.test/stream")
	w.Blocked("resolve", "evil.test")
	w.Blocked("tcp", "1.1.1.1:443")
	if r := w.AgentRuns("request", "wish.test"); r.Code != 0 {
		t.Fatalf("request: %s", r)
	}
	root := func(args ...string) lab.Result { return w.Root(append([]string{"agent-init"}, args...)...) }
	ways := map[string]string{"ok.test": "gate", "ok2.test": "direct", "45.30.9.9:8443": "address", "api.test": "inspected", "anthropic": "broker"}
	seen := func(as func(...string) lab.Result) (f topFrame) {
		t.Helper()
		if !rig.Eventually(lab.Patience, func() bool { // the process of a connection that began between the two looks is not known yet
			f = top(w.World, as)
			for name := range ways {
				if c := f.to(name); c.PID == 0 || c.In == 0 && name != "anthropic" && f.Counted {
					return false
				}
			}
			return len(f.Refused) >= 2
		}) {
			t.Fatalf("not all that is open is seen: %+v", f)
		}
		return f
	}
	before, after, agent := seen(root), seen(root), seen(w.AgentRuns)
	for name, way := range ways {
		a, b, c := before.to(name), after.to(name), agent.to(name)
		if b.Way != way || b.Process == "" || b.UID != lab.AgentUID && w.Mode == "" || b.Out < a.Out || (b.In <= a.In || b.InRate <= 0) && way != "broker" {
			t.Errorf("%s is %+v, and then %+v", name, a, b)
		}
		if c.Way != way || (c.PID != b.PID || c.Process != "poke") && way != "broker" || c.In != 0 {
			t.Errorf("the agent sees %s as %+v", name, c)
		}
	}
	if n := len(after.Connections); n != 6 || !after.Counted || !after.Operator || after.State != "confined" || len(after.Unseen) > 0 {
		t.Errorf("root sees %+v", after)
	}
	if agent.Counted || agent.Operator || len(agent.Connections) != 6 || len(agent.Unseen) != 1 {
		t.Errorf("the agent sees %+v", agent)
	}
	lines := map[string]string{}
	for _, r := range after.Refused {
		lines[r.Name] = r.Line
	}
	if lines["evil.test"] != "evil.test" || lines["1.1.1.1:443"] != "1.1.1.1:443" {
		t.Errorf("refused are %+v", after.Refused)
	}
	if len(after.Requests) != 1 || after.Requests[0].Target != "wish.test" || len(after.Ending) < 3 || len(after.Parts) < 3 || len(after.Asked) == 0 {
		t.Errorf("it shows %+v", after)
	}
}

// TestTopDecides: who looks as root allows what was refused by two keys, denies it again, and is asked in full before.
// The agent can't.
func TestTopDecides(t *testing.T) {
	s := rig.NewStreams()
	l := rig.NewLab(t)
	l.Web.Handle("evil.test", s)
	w := rig.ConfineIn(t, l, "ok.test\n", lab.BoxOptions{})
	w.Blocked("resolve", "evil.test")
	w.Audited("the refusal", func(e rig.Event) bool { return e.Name == "evil.test" })
	start := func(args ...string) (*person, *lab.Process) {
		p, tty := sitDown(t)
		top := w.Box.ExecStart(lab.Cmd{Args: append(args, "agent-init", "top"), TTY: tty})
		rig.Must(t, tty.Close())
		p.awaits("agent-init top", "REFUSED ", "evil.test")
		p.presses("3") // the refused
		return p, top
	}
	p, top := start()
	p.presses("a")
	p.awaits("Allow evil.test?", "3 for good")
	p.presses("1")
	p.awaits("1: allowed evil.test for 10m")
	w.Works("http", "https://evil.test/")
	w.Follow(s, "https://evil.test")
	p.presses("1") // the connections
	p.awaits("evil.test", "443 gate", "poke")
	p.presses("e")
	p.awaits("grant-1:1", "lease")
	p.presses("x")
	p.awaits("CONNECTIONS 1")
	p.presses("d")
	p.awaits("Deny evil.test?")
	p.presses("2")
	p.awaits("2: denied evil.test", "CONNECTIONS 0")
	w.Blocked("resolve", "evil.test")
	p.presses("q")
	if r := top.Wait(0); r.Code != 0 {
		t.Errorf("top ended with %s", r)
	}
	if !rig.Eventually(lab.Patience, func() bool { return !strings.Contains(p.sees(), "CONNECTIONS") }) {
		t.Errorf("the terminal still shows\n%s", p.sees())
	}

	p, top = start("agent-init", "exec", "--")
	p.awaits("read-only", "bytes are told to root alone")
	p.presses("a")
	p.awaits("only root decides here")
	p.presses("\x03")
	if r := top.Wait(0); r.Code != 0 {
		t.Errorf("top ended with %s", r)
	}
}
