package top

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// ours is all that a painter sends besides text.
var ours = regexp.MustCompile(`\x1b\[(?:[0-9;]*m|[0-9]+;1H|2K|2J)`)

// hostile is a container whose agent calls everything s.
func hostile(t testing.TB, s string) Facts {
	f := running(t)
	f.Holders = map[uint32]sockowner.Process{1: {PID: 1, Name: s}, 4: {PID: 2, Name: s + s}}
	f.Leases = &lease.Report{Names: []lease.Name{{Name: s, Addrs: []lease.Address{{Addr: addr("198.51.100.1"), On: "443/tcp", Expires: noon.Add(time.Hour)}}}}}
	f.Grants = []grant.Grant{{Number: 1, Kind: grant.Request, Target: s, Reason: s, Made: noon, Asked: 1 << 30}}
	f.State.Session.Name, f.State.Reason, f.State.Mode, f.State.Broker.Routes[0].Name = s, s, s, s
	f.State.Guard.OK, f.State.Guard.Fault = false, s
	f.Unseen, f.Parts = []string{s}, []Part{{s, 1, 1}}
	f.Events = []audit.Event{
		{Kind: audit.DNS, Verdict: audit.Deny, Name: s, Time: noon, Comm: s, PID: 7, Reason: s},
		{Kind: audit.Broker, Verdict: audit.Deny, Route: s, Time: noon, Comm: s, Reason: s},
		{Kind: audit.Kind(audit.Drop), Verdict: audit.Deny, IP: s, Port: 1, Time: noon, Comm: s},
	}
	return f
}

// FuzzHostile: whatever the agent calls something, a frame has its lines and columns, a terminal shows just these, and gets
// no control character that is not ours: it neither rings, nor has a title, nor moves.
func FuzzHostile(f *testing.F) {
	for _, s := range []string{"a.test", "\x1b[2J\x1b]0;title\x07", "\u202egnp.exe", "日本語日本語日本語日本語", "e\u0301\u0301\u0301", "👩‍👩‍👧‍👦🏽🇩🇪", "각\u1160", "\x9b31m\xff\xfe",
		strings.Repeat("a", 300) + ".evil.test", "a\nb\tc\rd", "\u200b\u2060\ufeff", "ﷺ𒐫", " lead", "-", "…………………………………………………", "\U000e0041\ufe0f"} {
		f.Add(s, uint8(80), uint8(24), uint8(0))
		f.Add(s, uint8(30), uint8(10), uint8(3))
	}
	f.Fuzz(func(t *testing.T, s string, width, height, how uint8) {
		if len(s) > 2000 {
			return
		}
		m := NewModel()
		m.Take(hostile(t, s))
		shown := m.Show()
		cols, rows := max(20, int(width)), max(5, int(height)%80)
		v := &View{focus: paneName(int(how) % panes)}
		switch how / 8 % 6 {
		case 1:
			v.Explain(s, s+"\n"+s)
		case 2:
			v.Say(s, true)
		case 3:
			v.typing, v.filter = true, s
		case 4:
			v.Key('a', &shown)
		case 5:
			v.Key('e', &shown)
			v.filter = s
		}
		holds(t, v.Frame(shown, cols, rows), cols, rows)
		for _, l := range v.whole(&shown, cols) {
			if strings.ContainsFunc(l.String(), unicode.IsControl) {
				t.Errorf("%q has a control character", l)
			}
		}
	})
}

func holds(t *testing.T, frame []line, cols, rows int) {
	t.Helper()
	if len(frame) != rows {
		t.Fatalf("%d lines in place of %d", len(frame), rows)
	}
	scr := newScreen(cols, rows)
	scr.draw(t, frame)
	if rest := ours.ReplaceAllString(scr.sent.String(), ""); strings.ContainsFunc(rest, unicode.IsControl) || scr.Title() != "" {
		t.Fatalf("the terminal gets %q, title %q", rest, scr.Title())
	}
	seen := scr.Text()
	for y, l := range frame {
		if n := text.Columns(l.String()); n != cols {
			t.Fatalf("line %d has %d columns of %d: %q", y, n, cols, l)
		}
		if got, want := strings.TrimRight(seen[y], " "), trimmed(l); got != want {
			t.Fatalf("line %d is %q on the terminal, and %q", y, got, want)
		}
	}
}

// FuzzKeys: whatever a terminal sends, each key is taken once, and a decision needs a question that was seen.
func FuzzKeys(f *testing.F) {
	f.Add([]byte("a1"), true)
	f.Add([]byte("\x1b[A\x1bOB\x1b[5~\x1b[1;5C\x1b\x1b[<0;1;1M/x\r3a2qe?"), false)
	f.Add([]byte("\xe6\x97\xa5\xff\x1b["), true)
	f.Fuzz(func(t *testing.T, b []byte, operator bool) {
		s := shown(t)
		s.Operator = operator
		v := looking(s)
		keys, rest := parseKeys(b, true)
		more, none := parseKeys(rest, false)
		if len(none) > 0 || len(rest) > 0 && len(more) == 0 || len(rest) > maxSequence+4 {
			t.Fatalf("of %q is left %q, then %q", b, rest, none)
		}
		for _, k := range append(keys, more...) {
			asked := v.question
			act := v.Key(k, &s)
			switch act.Deed {
			case Allow, Deny, TurnDown:
				if asked == nil || !operator || asked.act.Target != act.Target || act.Target == "" || !strings.Contains(asked.text, act.Target) {
					t.Fatalf("%v of %q was asked as %+v", act, k, asked)
				}
			}
			holds(t, v.Frame(s, 60, 20), 60, 20)
		}
	})
}

func TestParseKeys(t *testing.T) {
	for in, want := range map[string][]key{
		"aA":                   {'a', 'A'},
		"\x1b[A\x1bOB":         {keyUp, keyDown},
		"\x1b[5~\x1b[6~\x1b[Z": {keyPageUp, keyPageDown, keyBackTab},
		"\x1b[1;5Cq":           {keyOther, 'q'},
		"\x1b[<0;10;10Mq":      {keyOther, 'q'},
		"é日":                   {'é', '日'},
		"\x1b\x1bq":            {keyEsc, keyEsc, 'q'},
		"\r\n\t\x7f":           {keyEnter, keyEnter, keyTab, keyBackspace},
		"\x1b[\x07q":           {keyOther, 7, 'q'},
		"\xffq":                {keyOther, 'q'},
	} {
		if got, rest := parseKeys([]byte(in), false); len(rest) > 0 || !slices.Equal(got, want) {
			t.Errorf("%q is %x, want %x; left is %q", in, got, want, rest)
		}
	}
	for _, in := range []string{"\x1b", "\x1b[", "\x1b[1;", "\x1bO", "\xe6\x97"} { // more may come
		if got, rest := parseKeys([]byte(in), true); len(got) > 0 || string(rest) != in {
			t.Errorf("%q is %x, and %q", in, got, rest)
		}
	}
}

// TestClean: no character of what is clean joins what is beside it, which a control character may have parted before.
func TestClean(t *testing.T) {
	for s, want := range map[string]string{"日本 é": "日本 é", "e\u0301": "?", "\u202e\u0e33": "??", "\x1b\uff9e\x1b": "???", "\u0d4e\x1b": "??", "🇩": "?", "\u1160": "?", "🏽": "?"} {
		if got := clean(s); got != want {
			t.Errorf("%q is %q, want %q", s, got, want)
		}
	}
	if got := fit("a日", 2, true); got != "… " { // there is no room for its last character
		t.Errorf("%q", got)
	}
}

// TestFitKeepsTheEnd: of a name that is too long, what says whose it is stays.
func TestFitKeepsTheEnd(t *testing.T) {
	for _, c := range [][3]string{{"github.com.aaaaaaaaaaaaaaaa.evil.test", "…a.evil.test", "github.com.…"}, {"日本語日本語日本語", "…本語日本語 ", "日本語日本… "}, {"short", "short       ", "short       "}} {
		if got := fit(c[0], 12, true); got != c[1] {
			t.Errorf("%s: %q, want %q", c[0], got, c[1])
		}
		if got := fit(c[0], 12, false); strings.TrimRight(got, " ") != strings.TrimRight(c[2], " ") && c[0][0] < 0x80 || text.Columns(got) != 12 {
			t.Errorf("%s: %q, want %q", c[0], got, c[2])
		}
	}
}
