package top

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
)

// looking is a View that has been drawn.
func looking(s Shown) *View {
	v := &View{}
	v.Frame(s, 80, 24)
	return v
}

// press presses keys one after another, each when what the one before did is seen, and returns what the last asks for.
func press(v *View, s *Shown, keys ...key) (a Act) {
	for _, k := range keys {
		v.Frame(*s, max(v.width, 80), max(v.height, 24))
		a = v.Key(k, s)
	}
	return a
}

// TestDecisions: a decision takes the key, and an answer to a question that says all of it.
func TestDecisions(t *testing.T) {
	for what, c := range map[string]struct {
		keys []key
		want Act
	}{
		"a request for ten minutes": {[]key{'2', 'a', '1'}, Act{Deed: Allow, Target: "proxy.golang.org", Number: 3, Life: grant.DefaultFor}},
		"a request for good":        {[]key{'2', 'a', '3'}, Act{Deed: Allow, Target: "proxy.golang.org", Number: 3, Save: true}},
		"a request turned down":     {[]key{'2', 'd', 'y'}, Act{Deed: TurnDown, Target: "proxy.golang.org", Number: 3}},
		"a refused name":            {[]key{'3', 'a', '2'}, Act{Deed: Allow, Target: "telemetry.example.net"}},
		"a refused port":            {[]key{'3', 'j', 'a', '2'}, Act{Deed: Allow, Target: "git.example.com:8080"}},
		"no entry would allow it":   {[]key{'3', 'j', 'j', 'a', '2'}, Act{}},
		"a connection":              {[]key{'d', '2'}, Act{Deed: Deny, Target: "registry.npmjs.org"}},
		"to an address":             {[]key{keyEnd, keyUp, 'd', '1'}, Act{Deed: Deny, Target: "203.0.113.9:8443", Life: grant.DefaultFor}},
		"no":                        {[]key{'3', 'a', 'n'}, Act{}},
		"Escape":                    {[]key{'3', 'a', keyEsc, '1'}, Act{}},
		"no answer":                 {[]key{'3', 'a', 'x', keyEnter}, Act{}},
		"without a question":        {[]key{'3', '1'}, Act{}},
		"explain":                   {[]key{'e'}, Act{Deed: Explain, Target: "registry.npmjs.org:443"}},
		"explain a port of ours":    {[]key{'/', 'v', 'i', 't', 'e', keyEnter, 'e'}, Act{Deed: Explain, Target: "3000"}},
		"leave":                     {[]key{'q'}, Act{Deed: Quit}},
		"leave a question":          {[]key{'3', 'a', keyInterrupt}, Act{Deed: Quit}},
		"record":                    {[]key{'R'}, Act{Deed: Record}},
		"pasted":                    {[]key{'3', keyPaste, 'a', '1', 'q', keyPasted}, Act{}},
		"an answer that is pasted":  {[]key{'3', 'a', keyPaste, '1', keyPasted}, Act{}},
		"after what was pasted":     {[]key{'3', keyPaste, 'a', '1', keyPasted, 'a', '2'}, Act{Deed: Allow, Target: "telemetry.example.net"}},
		"a filter takes keys":       {[]key{'/', 'q'}, Act{}},
	} {
		s := shown(t)
		if got := press(looking(s), &s, c.keys...); got != c.want {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

// TestOnlyRootDecides: nothing that anybody else presses asks for a decision.
func TestOnlyRootDecides(t *testing.T) {
	s := shown(t)
	s.Operator = false
	for _, list := range []key{'1', '2', '3', '4', '5'} {
		for _, k := range []key{'a', 'd'} {
			v := &View{}
			if got := press(v, &s, list, k, '1', 'y'); got != (Act{}) || v.question != nil {
				t.Errorf("%c %c: %+v", list, k, got)
			}
		}
	}
	v := &View{}
	press(v, &s, '3', 'a')
	if text := newScreen(80, 24).draw(t, v.Frame(s, 80, 24)); !strings.Contains(text, "only root decides here") {
		t.Error(text)
	}
}

// TestAQuestionIsPinned: what is asked about is what is decided, whatever is shown meanwhile.
func TestAQuestionIsPinned(t *testing.T) {
	s := shown(t)
	v := &View{}
	press(v, &s, '3', 'a')
	s.Refused = s.Refused[1:]
	if !strings.Contains(newScreen(80, 24).draw(t, v.Frame(s, 80, 24)), "Allow telemetry.example.net?") {
		t.Error("the question is another")
	}
	if got := v.Key('1', &s); got.Target != "telemetry.example.net" {
		t.Errorf("allowed is %+v", got)
	}
	long := strings.Repeat("a.", 100) + "evil.test POST /" + strings.Repeat("x", 60)
	s.Requests[0].Target = long
	press(v, &s, '2', 'a')
	text := strings.ReplaceAll(newScreen(60, 24).draw(t, v.Frame(s, 60, 24)), "\n", "")
	if !strings.Contains(strings.ReplaceAll(text, " ", ""), strings.ReplaceAll(long, " ", "")) {
		t.Errorf("the question is cut: %s", text)
	}
	v.Frame(s, 60, 6)
	if got := v.Key('1', &s); got != (Act{}) || v.question != nil {
		t.Errorf("what could not be seen was decided: %+v", got)
	}
}

// TestKeysAreAboutWhatWasSeen: the agent can move a list between a look at it and a key, and a key that was typed ahead
// answers nothing.
func TestKeysAreAboutWhatWasSeen(t *testing.T) {
	s := shown(t)
	v := &View{}
	press(v, &s, '3')
	v.Frame(s, 80, 24)
	was := s.Refused[0]
	evil := was
	evil.Name, evil.Line = "evil.test", "evil.test"
	s.Refused = append([]Name{evil}, s.Refused...)
	v.Frame(s, 80, 24) // a moment before the key
	if v.Key('a', &s); v.question == nil || v.question.act.Target != was.Line {
		t.Fatalf("the question is about %+v", v.question)
	}
	if got := v.Key('1', &s); got != (Act{}) || v.question == nil {
		t.Errorf("before the question was drawn: %+v", got)
	}
	v.Frame(s, 80, 24)
	if got := v.Key('1', &s); got.Target != was.Line {
		t.Errorf("after it: %+v", got)
	}
	s.Refused = append(s.Refused[:1:1], s.Refused[2:]...)
	if got := v.Key('a', &s); got != (Act{}) || v.question != nil {
		t.Errorf("what was selected is gone: %+v, %+v", got, v.question)
	}
	v.Frame(s, 80, 24)
	if v.Key('a', &s); v.question == nil {
		t.Error("the next one can't be selected")
	}
}

// TestSelectionStays: a row stays selected wherever it goes, and another is when it is gone.
func TestSelectionStays(t *testing.T) {
	s := shown(t)
	v := &View{}
	press(v, &s, keyDown)
	name := func() string { a := v.Key('e', &s); return a.Target }
	if name() != "127.0.0.1:50085" {
		t.Fatalf("the second is %s", name())
	}
	press(v, &s, 's', 's', 's') // by name
	if name() != "127.0.0.1:50085" {
		t.Errorf("sorted by name, it is %s", name())
	}
	press(v, &s, 'r')
	if name() != "127.0.0.1:50085" {
		t.Errorf("the other way round, it is %s", name())
	}
	press(v, &s, '/', 's', 's', 'h', keyEnter)
	if name() != "git.example.com:22" {
		t.Errorf("filtered, it is %s", name())
	}
	press(v, &s, keyEsc, keyHome)
	s.Connections = nil
	if name() != "" || v.said == "" {
		t.Errorf("of none, it is %s", name())
	}
}

// TestOrders: connections by what they are sorted by, and the other way round.
func TestOrders(t *testing.T) {
	s := shown(t)
	s.Connections[2].Since = noon.Add(-time.Minute)
	v := &View{}
	first := func() string { return v.ofConnections(&s).target(0).place }
	var got []string
	for range orders {
		a := first()
		press(v, &s, 'r')
		got = append(got, v.order.String()+" "+a+" "+first())
		press(v, &s, 'r', 's')
	}
	want := "rate registry.npmjs.org:443 198.51.100.77:443; bytes registry.npmjs.org:443 198.51.100.77:443; age mirror.example.com:443 3000; name 3000 registry.npmjs.org:443; process 198.51.100.77:443 3000"
	if all := strings.Join(got, "; "); all != want {
		t.Errorf("got  %s\nwant %s", all, want)
	}
}

// TestFreeze: what is frozen stays, with its rows, until it is let go.
func TestFreeze(t *testing.T) {
	s := shown(t)
	v := &View{}
	press(v, &s, 'f')
	none := s
	none.Connections, none.Time = nil, s.Time.Add(time.Hour)
	text := newScreen(80, 24).draw(t, v.Frame(none, 80, 24))
	if !strings.Contains(text, "frozen") || !strings.Contains(text, "registry.npmjs.org") || !strings.Contains(text, "12:00:01") {
		t.Error(text)
	}
	if a := press(v, &none, 'e'); a.Target != "registry.npmjs.org:443" {
		t.Errorf("explained is %+v", a)
	}
	press(v, &none, 'f')
	if strings.Contains(newScreen(80, 24).draw(t, v.Frame(none, 80, 24)), "registry.npmjs.org (+1)") {
		t.Error("it is frozen still")
	}
}

// TestOverlay: the help and an explanation lie over the lists, scroll, and go with any other key.
func TestOverlay(t *testing.T) {
	s := shown(t)
	v := &View{}
	press(v, &s, '?')
	text := newScreen(80, 24).draw(t, v.Frame(s, 80, 24))
	if !strings.Contains(text, "allow what is selected") || strings.Contains(text, "REFUSED") {
		t.Error(text)
	}
	press(v, &s, 'x')
	v.Explain("a.test", strings.Repeat("line\n", 100)+"the end\n")
	for range 20 {
		press(v, &s, keyPageDown)
		v.Frame(s, 80, 24)
	}
	if text := newScreen(80, 24).draw(t, v.Frame(s, 80, 24)); !strings.Contains(text, "the end") {
		t.Error(text)
	}
	press(v, &s, keyHome, keyUp)
	if text := newScreen(80, 24).draw(t, v.Frame(s, 80, 24)); strings.Contains(text, "the end") {
		t.Error(text)
	}
	press(v, &s, 'q')
	if v.over != nil {
		t.Error("it stays")
	}
}

// TestPainter: only lines that have changed are drawn again, and the terminal is given back as it was.
func TestPainter(t *testing.T) {
	s := shown(t)
	v := &View{}
	scr := newScreen(80, 24)
	scr.Write([]byte("before\r\n$ "))
	was := scr.text()
	if err := scr.begin(); err != nil {
		t.Fatal(err)
	}
	scr.draw(t, v.Frame(s, 80, 24))
	all := scr.sent.Len()
	scr.draw(t, v.Frame(s, 80, 24))
	if scr.sent.Len() != all {
		t.Errorf("the same frame took %d bytes", scr.sent.Len()-all)
	}
	s.Time = s.Time.Add(time.Second)
	s.Connections[0].In++
	scr.draw(t, v.Frame(s, 80, 24))
	if n := scr.sent.Len() - all; n == 0 || n > 2000 {
		t.Errorf("a second later it took %d bytes", n)
	}
	if err := scr.end(); err != nil || scr.text() != was {
		t.Errorf("the terminal is left with\n%s", scr.text())
	}
	for _, colour := range []bool{true, false} {
		var b strings.Builder
		p := painter{out: &b, colour: colour}
		if err := p.paint(v.Frame(s, 80, 24)); err != nil || strings.Contains(b.String(), "\x1b[32m") != colour {
			t.Errorf("coloured %t: %q", colour, b.String())
		}
	}
}

// TestRecorder: a file that somebody has prepared is not written to, and one has an end.
func TestRecorder(t *testing.T) {
	dir := t.TempDir()
	name, other := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := os.Symlink(other, name); err != nil {
		t.Fatal(err)
	}
	if _, err := newRecorder(name); err == nil {
		t.Error("it was written through a link")
	}
	r, err := newRecorder(other)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := r.file.Stat(); err != nil || st.Mode().Perm() != 0o600 {
		t.Error(st.Mode(), err)
	}
	v := &View{filter: "node"}
	seen := v.Seen(shown(t))
	if err := r.write(seen); err != nil || len(seen.Connections) != 2 || len(shown(t).Connections) != 8 {
		t.Errorf("%d connections: %v", len(seen.Connections), err)
	}
	r.left = 10
	if err := r.write(seen); err != errFull {
		t.Errorf("a full file: %v", err)
	}
	data, err := os.ReadFile(other)
	if err != nil || strings.Count(string(data), "\n") != 1 || !strings.Contains(string(data), `"process":"node"`) {
		t.Errorf("%s: %v", data, err)
	}
}
