package attach

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/session/protocol"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

var update = flag.Bool("update", false, "write the golden screens anew")

// TestScreens: what each view shows at four widths, as a terminal shows it.
func TestScreens(t *testing.T) { synctest.Test(t, testScreens) } // no time passes meanwhile

func testScreens(t *testing.T) {
	since := time.Now().Add(-2 * time.Minute)
	long := "a-name-that-is-rather-long.of-a-service.internal.corp.example:8443 GET,HEAD /v1/models"
	list := []Asked{
		{Number: 3, Target: "registry.example.com", Reason: "to install the linter that the repository asks for", From: "pid 812 npm", Since: since},
		{Number: 4, Target: long, Reason: strings.Repeat("because I say so ", 11), From: "pid 90 \x1b[31msh\x07, 12 times", Since: since},
		{Number: 9, Target: "paste.example", From: "a process", Since: since, Became: "turned down by uid 0, 12:00:00"},
	}
	views := map[string]func(a *attachment) view{
		"requests": func(a *attachment) view {
			v := a.requests()
			v.list = append(v.list, asked{Asked: list[2]})
			return v
		},
		"requests-long": func(a *attachment) view {
			v := a.requests()
			v.press("down")
			return v
		},
		"requests-answered": func(a *attachment) view {
			v := a.requests()
			v.list[0].Became = "granted by uid 0, 12:00:00"
			v.list[0].came = []string{"allowed registry.example.com for good", "warning: there is no volume at /var/lib/agent-init: what is saved goes with the container"}
			return v
		},
		"requests-only-look": func(a *attachment) view {
			a.o.Requests.Answer = nil
			return a.requests()
		},
		"requests-none": func(a *attachment) view {
			a.o.Requests.List = func() ([]Asked, error) { return nil, nil }
			return a.requests()
		},
		"requests-failed": func(a *attachment) view {
			v := a.requests()
			v.take(came{number: 3, err: errors.New("the keeper is ending; remedy: start it again")})
			return v
		},
		"help": func(a *attachment) view {
			return &help{a, []protocol.WindowInfo{{ID: 0, Name: "claude", Title: "✳ fixing \x1b]2;the\x07 build 日本"}, {ID: 1, Name: "tests"}}}
		},
		"ending": func(a *attachment) view { return &ending{a} },
		"history": func(a *attachment) view {
			s := &scroll{a: a, found: -1}
			s.answered([]byte(strings.Repeat("one\n日本語 and a line that is longer than most terminals are wide, since it goes on and on until its end\n", 20) + "last\n"))
			s.wanted = "one"
			s.press("G")
			return s
		},
	}
	for name, open := range views {
		var b strings.Builder
		for _, columns := range []int{60, 80, 120, 200} {
			const lines = 22
			a := &attachment{cols: columns, rows: lines, sock: -1, o: Options{Prefix: DefaultPrefix, Requests: Requests{
				List:   func() ([]Asked, error) { return list[:2], nil },
				Answer: func(Asked, sessionop.Verdict) ([]string, error) { return nil, nil },
				Who:    "Only root answers, and who sits at the container's own terminal: agent-init attach as root",
			}}}
			a.result.Window, a.name = "0", "claude"
			term := terminal.New(terminal.Options{Cols: columns, Rows: lines, Scrollback: -1})
			v := open(a)
			for range 2 { // what is drawn twice is the same
				_, _ = term.Write(append(terminal.Over(), paint(v.draw(columns, lines), columns, lines)...))
			}
			fmt.Fprintf(&b, "--- %d columns\n%s\n", columns, strings.TrimRight(strings.Join(term.Text(), "\n"), "\n"))
		}
		golden := filepath.Join("testdata", name+".screens.txt")
		if *update {
			if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || b.String() != string(want) {
			t.Errorf("%s shows (%v)\n%s", name, err, b.String())
		}
	}
}

// TestTooSmall: where what is asked can't be shown whole, it can't be answered.
func TestTooSmall(t *testing.T) {
	for _, c := range []struct {
		columns, lines int
		answered       bool
	}{{30, 20, true}, {30, 6, false}, {200, 6, true}, {10, 12, false}, {1, 1, false}} {
		n := 0
		a := &attachment{cols: c.columns, rows: c.lines, sock: -1, came: make(chan came, 1), o: Options{Requests: Requests{
			List: func() ([]Asked, error) {
				return []Asked{{Number: 1, Target: strings.Repeat("long.", 16) + "example"}}, nil
			},
			Answer: func(Asked, sessionop.Verdict) ([]string, error) { return nil, nil },
		}}}
		v := a.requests()
		rows := v.draw(c.columns, c.lines)
		v.press("3")
		if v.list[0].pending {
			n++
			<-a.came
		}
		if (n == 1) != c.answered {
			t.Errorf("%dx%d: answered: %t\n%s", c.columns, c.lines, n == 1, spell(rows))
		}
	}
}

// steps are all that paint may say to a terminal.
var steps = regexp.MustCompile(`^(?:\x1b\[(?:\?2026[hl]|\d+;1H|\d+G|0;[1-9]?m|m|K)|[^\x00-\x1f\x7f-\x9f])*$`)

// FuzzPaint: whatever stands in a cell, nothing of it is outside of it: neither on the screen, nor as something that a
// terminal does besides.
func FuzzPaint(f *testing.F) {
	f.Add("plain", "\x1b[2J\x1b]2;x\x07\u202e", 20, 3)
	f.Add("日本語", "\u0301\u200d\ufe0f🇩🇪👩‍👧", 9, 2)
	f.Add("\n\r\t\v\x9b1m", strings.Repeat("x", 500), 40, 1)
	f.Fuzz(func(t *testing.T, one, two string, width, lines int) {
		const columns = 60
		width, lines = 1+width&0x1f, 1+lines&7
		rows := []row{{{"<<", 2, ""}, {one, width, strong}, {"><", 2, ""}, {two, width, inverse}, {">>", 2, ""}}}
		for range lines - 1 {
			rows = append(rows, line("", "untouched"))
		}
		picture := paint(rows, columns+20, lines+1)
		if !steps.Match(picture) {
			t.Fatalf("%q", picture)
		}
		term := terminal.New(terminal.Options{Cols: columns + 20, Rows: lines + 1, Scrollback: -1})
		_, _ = term.Write(append(terminal.Over(), picture...))
		shown := term.Text()
		for _, l := range shown[1:lines] {
			if l != "untouched" {
				t.Fatalf("%q and %q: another row is %q", one, two, l)
			}
		}
		if shown[lines] != "" || term.Title() != "" || len(term.Replies()) > 0 {
			t.Fatalf("%q and %q: the last row is %q, the title %q", one, two, shown[lines], term.Title())
		}
		// Each cell begins where it has to, whatever is before.
		again := terminal.New(terminal.Options{Cols: columns + 20, Rows: lines + 1, Scrollback: -1})
		rows[0][1].text, rows[0][3].text = "", ""
		_, _ = again.Write(append(terminal.Over(), paint(rows, columns+20, lines+1)...))
		for _, at := range []int{0, 1, width + 2, width + 3, 2*width + 4, 2*width + 5} {
			if cellOf(term, at) != cellOf(again, at) {
				t.Fatalf("%q and %q: column %d has %q, want %q: %q", one, two, at, cellOf(term, at), cellOf(again, at), shown[0])
			}
		}
	})
}

// cellOf is what is shown in a column of the first row.
func cellOf(t *terminal.Terminal, column int) string {
	upTo := func(columns int) string {
		copied := terminal.New(terminal.Options{Cols: max(1, columns), Rows: 1, Scrollback: -1})
		_, _ = copied.Write(append([]byte("\x1b[?7l"), t.Restore(max(1, columns), 1)...))
		return copied.Text()[0]
	}
	if column == 0 {
		return upTo(1)
	}
	return strings.TrimPrefix(upTo(column+1), upTo(column))
}

// FuzzKeyNames: whatever a terminal types, a key is a character or one of few words, and no report is one.
func FuzzKeyNames(f *testing.F) {
	for _, s := range []string{"1", "\x1b[A", "\x1b[49u", "\x1b]l1\x1b\\", "\x1b[1;1R", "\x9b1;1R", "\xc2\x9b1;1R", "ä", "\x1b[5~", "\x1b[27;2;49~", "\x1b1"} {
		f.Add([]byte(s))
	}
	words := regexp.MustCompile(`^(?:|up|down|home|end|pgup|pgdn|enter|backspace|esc|[^\x00-\x1f\x7f])$`)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		name := nameOf(b)
		if len(b) > 1 && b[0] != 0x1b && []rune(string(b))[0] < 0x80 {
			return // more than one character: never handed to it
		}
		if runes := []rune(string(b)); b[0] != 0x1b && len(runes) > 1 {
			return
		}
		if !words.MatchString(name) {
			t.Fatalf("%q is called %q", b, name)
		}
		if _, decides := verdicts[name]; decides && len(b) > 1 && decodeKey(b).character() == 0 {
			t.Fatalf("%q decides as %q", b, name)
		}
	})
}
