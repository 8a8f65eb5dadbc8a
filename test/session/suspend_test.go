package session

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// claudeLike suspends itself as Claude Code does, which leaves the terminal to a shell, stops its process group, and does
// nothing until somebody has resumed it.
const claudeLike = `trap back=1 CONT; stty raw -echo; printf ready; head -c 1 >/dev/null; stty sane
kill -TSTP 0; until [ "$back" ]; do read -rt 0.1 none; done; echo resumed; read -r line; echo "heard $line"; read -r line`

// suspends are programs that are suspended. Each shows ready, gets ^Z, and has to react to what is typed then.
var suspends = []struct {
	name  string
	argv  []string
	ready string
	after func(r *rig, pane int)
}{
	{"claude-like", []string{"bash", "-c", claudeLike}, "ready", func(r *rig, p int) {
		r.shows(p, "resumed")
		r.line(p, "one")
		r.shows(p, "heard one")
	}},
	{"below-sh", []string{"sh", "-c", `bash -c "$0"; echo "left $?"; read -r line`, claudeLike}, "ready", func(r *rig, p int) {
		r.shows(p, "resumed")
		r.line(p, "one")
		r.shows(p, "heard one")
		r.keys(p, "Enter")
		r.shows(p, "left 0")
	}},
	{"stops-itself", []string{"sh", "-c", `echo ready; read -r line; echo "heard $line"; read -r line`}, "ready", func(r *rig, p int) {
		r.line(p, "one")
		r.shows(p, "heard one")
	}},
	{"vim", []string{"vim", "-u", "NONE", "-i", "NONE", "-N", "-n"}, "~", func(r *rig, p int) {
		r.presses(p, "-- INSERT --", "i")
		r.line(p, "typed into vim")
		r.shows(p, "typed into vim")
	}},
	{"less", []string{"less", "/usr/share/common-licenses/GPL-3"}, "GNU GENERAL", func(r *rig, p int) {
		r.presses(p, "(END)", "G") // it drops what was typed before
	}},
	{"less-below-sh", []string{"sh", "-c", `less /usr/share/common-licenses/GPL-3; echo "left $?"; read -r line`}, "GNU GENERAL", func(r *rig, p int) {
		r.presses(p, "(END)", "G") // it drops what was typed before
		r.keys(p, "q")
		r.shows(p, "left 0")
	}},
	{"top", []string{"top", "-d", "100"}, "load average", func(r *rig, p int) {
		r.presses(p, "Help for", "h")
	}},
	{"bash", []string{"bash", "--norc", "--noprofile"}, "$", func(r *rig, p int) {
		r.line(p, "PS1=prom''pt: PROMPT_COMMAND=")
		r.shows(p, "prompt:")
		r.line(p, "vim -u NONE -i NONE -N -n")
		r.shows(p, "~")
		r.keys(p, "C-z")
		r.shows(p, "Stopped")
		r.line(p, "fg")
		r.presses(p, "-- INSERT --", "i")
		r.line(p, "typed into vim")
		r.shows(p, "typed into vim")
		r.keys(p, "Escape")
		r.line(p, ":q!")
		r.shows(p, "prompt:")
		r.line(p, "suspend")
		r.line(p, "echo back $((1+1)); exit 7")
		r.shows(p, "back 2")
	}},
}

// presses presses keys until a pane shows a text.
func (r *rig) presses(n int, text string, keys ...string) {
	r.Helper()
	var last time.Time
	r.eventually(fmt.Sprintf("pane %d does not show %q", n, text), func() bool {
		shown := strings.Contains(r.screen(n), text)
		if !shown && time.Since(last) > time.Second {
			r.keys(n, keys...)
			last = time.Now()
		}
		return shown
	})
}

// TestLabSessionSuspend: what suspends itself goes on where no shell could resume it, in each way to start a program.
func TestLabSessionSuspend(t *testing.T) {
	r := newRig(t)
	r.start(100, 30, "", "sh -c 'read -r line'")
	commandOf := func(argv []string) string {
		quoted := make([]string, len(argv))
		for i, a := range argv {
			quoted[i] = quote(a)
		}
		return strings.Join(quoted, " ")
	}
	inside := append(r.enter("root"), "env", "-i", "TERM=xterm-256color", "PATH=/usr/bin:/bin")
	for _, way := range []struct {
		name  string
		start func(name string, argv []string) int
	}{
		{"new", func(name string, argv []string) int {
			r.must("root", append([]string{"new", name, "--"}, argv...)...)
			return r.attach(100, 30, "root", "", name)
		}},
		{"exec", func(_ string, argv []string) int {
			return r.pane(100, 30, commandOf(append(append([]string{}, inside...), append([]string{r.binary, "exec", "--"}, argv...)...)))
		}},
		{"exec -T", func(_ string, argv []string) int { // as docker exec starts it, it leads the terminal's session
			return r.pane(100, 30, commandOf(append(append([]string{}, inside...), append([]string{"setsid", "-c", "-w", r.binary, "exec", "-T", "--"}, argv...)...)))
		}},
	} {
		for _, c := range suspends {
			t.Run(way.name+"/"+c.name, func(t *testing.T) {
				outer := r.T
				r.T = t
				defer func() { r.T = outer }()
				p := way.start(c.name, c.argv)
				r.shows(p, c.ready)
				r.keys(p, "C-z")
				c.after(r, p)
				r.tmux("kill-session", "-t", name(p))
			})
		}
	}
}

// TestLabSessionSuspendFirst: so does the command of agent-init run, in a session or without one.
func TestLabSessionSuspendFirst(t *testing.T) {
	for _, session := range []string{"always", "never"} {
		t.Run(session, func(t *testing.T) {
			r := newRig(t)
			p := r.pane(100, 30, r.runLine("--session "+session, "bash -c "+quote(claudeLike+"; exit 5")))
			r.shows(p, "ready")
			r.keys(p, "C-z")
			r.shows(p, "resumed")
			r.line(p, "one")
			r.shows(p, "heard one")
			r.keys(p, "Enter")
			r.shows(p, "[exit 5]")
		})
	}
}
