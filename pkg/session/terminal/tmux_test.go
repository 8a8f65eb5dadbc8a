package terminal

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// shot is what tmux says that a screen shows.
type shot struct {
	lines []string // with SGR
	state string
}

const shotState = "cursor #{cursor_x},#{cursor_y} visible=#{cursor_flag} alternate=#{alternate_on} insert=#{insert_flag} " +
	"app-cursor=#{keypad_cursor_flag} app-keypad=#{keypad_flag} origin=#{origin_flag} wrap=#{wrap_flag} " +
	"mouse=#{mouse_standard_flag}#{mouse_button_flag}#{mouse_all_flag}#{mouse_sgr_flag}#{mouse_utf8_flag} region=#{scroll_region_upper}-#{scroll_region_lower}"

// TestPeerTmuxResize holds what a resize makes of the screen against tmux. Left out are the sizes
// where tmux is alone: it takes rows away at the top when lines are wrapped anew, also where
// there is room below, and gets back what was erased.
func TestPeerTmuxResize(t *testing.T) {
	tmux := mustrun.Tool(t, "tmux")
	for _, r := range recordings(t) {
		t.Run(r.name, func(t *testing.T) {
			for part := 1; part <= 2; part++ {
				data := r.data[:len(r.data)*part/2]
				for _, by := range [][2]int{{17, 0}, {0, -9}, {11, -4}} {
					term := New(Options{Cols: r.cols, Rows: r.rows})
					term.Write(data)
					if !term.scan.ready() {
						continue
					}
					cols, rows := r.cols+by[0], r.rows+by[1]
					term.Resize(cols, rows)
					shown := ask(t, tmux, data, r, "resize-window", "-x", fmt.Sprint(cols), "-y", fmt.Sprint(rows), ";", "capture-pane", "-p")
					for y, got := range term.Text() {
						want := ""
						if y < len(shown) {
							want = shown[y]
						}
						if got != strings.TrimRight(want, " ") {
							t.Errorf("%d bytes, %dx%d: row %d\ntmux  %q\nmodel %q", len(data), cols, rows, y, want, got)
							break
						}
					}
				}
			}
		})
	}
}

// judge shows bytes in a pane of tmux. Of each row it says all but the last column: tmux
// leaves out what was erased at the end of a row, its colour too, unless something was
// written behind it.
func judge(t *testing.T, tmux string, data []byte, r recording) shot {
	t.Helper()
	ends := []byte("\x1b[?6l\x1b[4l\x1b[r\x1b[m\x1b(B\x0f")
	for y := range r.rows {
		ends = fmt.Appendf(ends, "\x1b[%d;%dH#", y+1, r.cols)
	}
	return shot{
		state: ask(t, tmux, data, r, "display-message", "-p", shotState)[0],
		lines: ask(t, tmux, slices.Concat(data, ends), r, "capture-pane", "-p", "-e", "-N"),
	}
}

// ask shows bytes in a pane of tmux and returns the lines that a command then prints.
func ask(t *testing.T, tmux string, data []byte, r recording, command ...string) []string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "bytes")
	// The title says when tmux has read everything. ST first, for bytes that end in a string.
	if err := os.WriteFile(file, append(data[:len(data):len(data)], "\x1b]2;all read\x1b\\"...), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		cmd := exec.Command(tmux, append([]string{"-S", filepath.Join(dir, "socket"), "-f", "/dev/null"}, args...)...)
		cmd.Env = []string{"LC_ALL=C.UTF-8", "TERM=xterm-256color", "PATH=" + os.Getenv("PATH"), "SHELL=/bin/sh"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	run("new-session", "-d", "-x", fmt.Sprint(r.cols), "-y", fmt.Sprint(r.rows),
		"stty raw -echo; cat "+file+"; exec sleep 1000", ";", "set", "-g", "status", "off", ";", "resize-window", "-x", fmt.Sprint(r.cols), "-y", fmt.Sprint(r.rows))
	defer run("kill-server")
	for deadline := time.Now().Add(time.Minute); run("display-message", "-p", "#{pane_title}") != "all read\n"; {
		if time.Now().After(deadline) {
			t.Fatal("tmux does not come to the end of the bytes")
		}
		time.Sleep(5 * time.Millisecond)
	}
	return strings.Split(strings.TrimSuffix(run(command...), "\n"), "\n")
}

// state says the same of the model.
func (t *Terminal) shotState() string {
	flag := func(on bool) int {
		if on {
			return 1
		}
		return 0
	}
	x := t.cur.x
	if t.cur.pending {
		x++
	}
	mouse := map[int]int{}
	for _, n := range t.modes.mouse {
		if n <= 1003 {
			mouse[1000], mouse[1002], mouse[1003] = 0, 0, 0 // in tmux the last one counts
		}
		mouse[n] = 1
	}
	return fmt.Sprintf("cursor %d,%d visible=%d alternate=%d insert=%d app-cursor=%d app-keypad=%d origin=%d wrap=%d mouse=%d%d%d%d%d region=%d-%d",
		x, t.cur.y, flag(t.modes.has(modeCursor)), flag(t.alternate()), flag(t.modes.has(modeInsert)), flag(t.modes.has(modeCursorKeys)),
		flag(t.modes.has(modeKeypad)), flag(t.cur.origin), flag(t.modes.has(modeAutowrap)),
		mouse[1000], mouse[1002], mouse[1003], mouse[1006], mouse[1005], t.top, t.bottom)
}

// shown is a cell as tmux and the model are compared: its text, then its style in words.
func shown(text string, s look) string {
	if strings.TrimSpace(text) == "" {
		text = " "
	}
	colour := func(c color) string {
		switch c & kindMask {
		case kindBasic, kindIndexed:
			return fmt.Sprint(int(c & 0xff))
		case kindRGB:
			return fmt.Sprintf("#%06x", int(c&0xffffff))
		}
		return "-"
	}
	return fmt.Sprintf("%s fg%s bg%s %08b u%d", text, colour(s.FG), colour(s.BG), s.Attr, s.Underline)
}

// looks reads a line of capture-pane: a reader of SGR that shares nothing with the model's.
// The style goes on from line to line.
func looks(t *testing.T, line string, cols int, s *look) []string {
	t.Helper()
	var out []string
	for line != "" {
		if line[0] != 0x1b {
			r := []rune(line)
			n := 1
			for n < len(r) && width(r[n]) == 0 || n < len(r) && joins(string(r[:n]), r[n]) {
				n++
			}
			text := string(r[:n])
			line = line[len(text):]
			out = append(out, shown(text, *s))
			if width(r[0]) == 2 || n > 1 && (strings.ContainsRune(text, emojiStyle) || isModifier(r[1])) {
				out = append(out, "tail")
			}
			continue
		}
		var codes string
		if line[1] == '[' {
			codes, line, _ = strings.Cut(line[2:], "m")
		} else {
			line = line[2:] // SI, SO and the like do not occur here
			continue
		}
		readSGR(t, codes, s)
	}
	for len(out) < cols {
		out = append(out, shown(" ", look{}))
	}
	return out
}

func readSGR(t *testing.T, codes string, s *look) {
	known := map[string]attrs{"1": bold, "2": faint, "3": italic, "5": blink, "7": reverse, "8": conceal, "9": strike, "53": overline}
	f := strings.Split(codes, ";")
	for i := 0; i < len(f); i++ {
		var n int
		fmt.Sscan(f[i], &n)
		target := &s.FG
		if n >= 40 && n < 50 || n >= 100 {
			target = &s.BG
			n -= 10
		}
		switch {
		case f[i] == "0" || f[i] == "":
			*s = look{}
		case f[i] == "4":
			s.Underline = 1
		case strings.HasPrefix(f[i], "4:"):
			fmt.Sscan(f[i][2:], &s.Underline)
		case strings.HasPrefix(f[i], "58"): // colours of underlines are not compared
			i = len(f)
		case known[f[i]] != 0:
			s.Attr |= known[f[i]]
		case n == 38 && f[i+1] == "5":
			fmt.Sscan(f[i+2], &n)
			*target = kindIndexed | color(n)
			i += 2
		case n == 38:
			var r, g, b int
			fmt.Sscan(f[i+2]+" "+f[i+3]+" "+f[i+4], &r, &g, &b)
			*target = kindRGB | color(r<<16|g<<8|b)
			i += 4
		case n == 39:
			*target = 0
		case n >= 30 && n <= 37:
			*target = kindBasic | color(n-30)
		case n >= 90 && n <= 97:
			*target = kindBasic | color(n-82)
		default:
			t.Fatalf("unknown SGR %q of tmux", codes)
		}
	}
}

func compareShot(t *testing.T, what string, want shot, got *Terminal) {
	t.Helper()
	if s := got.shotState(); s != want.state {
		t.Errorf("%s: state\ntmux  %s\nmodel %s", what, want.state, s)
	}
	var style look
	for y, row := range got.scr.rows {
		line := ""
		if y < len(want.lines) {
			line = want.lines[y]
		}
		for x, w := range looks(t, line, got.cols, &style) {
			if x >= got.cols-1 {
				break
			}
			c := row.get(x)
			text := got.text(c)
			if w == "tail" && text == "" {
				continue
			}
			if l := shown(text, got.look(c.style)); l != w {
				t.Errorf("%s: row %d column %d\ntmux  %s\nmodel %s", what, y, x, w, l)
				break
			}
		}
	}
}

// TestPeerTmux holds the model against tmux: after recorded output of real programs both show
// the same, and so does a second tmux that got what Restore says.
func TestPeerTmux(t *testing.T) {
	tmux := mustrun.Tool(t, "tmux")
	for _, r := range recordings(t) {
		t.Run(r.name, func(t *testing.T) {
			for part := 1; part <= 4; part++ {
				data := r.data[:len(r.data)*part/4]
				term := New(Options{Cols: r.cols, Rows: r.rows})
				for term.Write(data); !term.scan.ready(); { // on to where no sequence is cut
					data = r.data[:len(data)+1]
					term.Write(data[len(data)-1:])
				}
				compareShot(t, fmt.Sprintf("after %d bytes", len(data)), judge(t, tmux, data, r), term)
				compareShot(t, fmt.Sprintf("restored after %d bytes", len(data)), judge(t, tmux, term.Restore(r.cols, r.rows), r), term)
			}
		})
	}
}
