package session

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// spoilt is OSC 52 as only some readers take it for that: what makes it out is said by
// ECMA-48 5.3 and vt100.net's parser, and by tmux, which counts in 32 bits.
func spoilt(selection, text string) []string {
	forms := []string{`\033]52;%s\007`, `\033\007]52;%s\007`, `\033\012]52;%s\007`, `\033\000]52;%s\007`, `\033\177]52;%s\007`,
		`\033]4294967348;%s\007`, `\033]000000000000000000000000052;%s\007`, `\033]5\0002;%s\007`, `\033\033]52;%s\033\\`, `\302\23552;%s\302\234`,
		`\033Ptmux;\033\033\007]52;%s\007\033\\`}
	var out []string
	for _, f := range forms {
		out = append(out, fmt.Sprintf(f, selection+";"+text))
	}
	return out
}

// answersTo is a command that prints each of these, and after it asks for the cursor, as
// whose answer it reads all that comes up to it.
func answersTo(prints []string) string {
	var b strings.Builder
	b.WriteString("stty raw -echo; ")
	for _, p := range prints {
		fmt.Fprintf(&b, "printf '%s\\033[6n'; IFS= read -rsd R x; all=$all$x; ", p)
	}
	b.WriteString("stty sane; printf '\\033[H\\033[2J'; printf %s \"$all\" | od -An -c; echo all asked")
	return b.String()
}

// prompting is a shell of root's in a pane, inside of the box.
func (r *rig) prompting() int {
	r.Helper()
	n := r.pane(100, 30, strings.Join(r.enter("root", "env", "-i", "TERM=tmux-256color", "PATH=/usr/bin:/bin", "PS1='root# '", "sh"), " "))
	r.shows(n, "root#")
	return n
}

// clipboard makes tmux a terminal that gives its clipboard to who asks.
func (r *rig) clipboard(text string) {
	r.Helper()
	r.tmux("set", "-s", "set-clipboard", "on")
	r.tmux("set", "-g", "allow-passthrough", "on")
	r.tmux("set-buffer", text)
}

// TestLabClipboardIsNotRead asks for the clipboard by sequences that only some readers take for such: in a session, by
// exec, and on a record.
func TestLabClipboardIsNotRead(t *testing.T) {
	r := newRig(t)
	cast := "/var/log/agent-init/session.cast"
	script := filepath.Join(t.TempDir(), "ask")
	must(t, os.WriteFile(script, []byte(answersTo(spoilt("c", "?"))), 0o755))
	must(t, os.Chmod(filepath.Dir(script), 0o755))
	must(t, os.Chmod(filepath.Dir(filepath.Dir(script)), 0o755))
	p := r.start(100, 30, "--record "+cast, prompt)
	r.clipboard("MY-SECRET-CLIPBOARD")
	r.shows(p, ">")
	r.line(p, "bash "+script)
	r.shows(p, "all asked")
	if s := r.screen(p); strings.Contains(s, "5   2") || strings.Contains(s, "]") {
		t.Errorf("in a session, the terminal answered\n%s", s)
	}
	var data []byte
	r.eventually("the record does not have all of it", func() (all bool) {
		var err error
		data, err = os.ReadFile(r.record(cast))
		must(t, err)
		return strings.Contains(string(data), "all asked\\r\\n")
	})
	// Without what begins it, 52;c;? is a text like any other, and what tmux is to pass on is no question.
	for _, begins := range []string{`\u001b]`, `]52;`, "\u009d", `[6n`} {
		if strings.Contains(string(data), begins) {
			t.Errorf("a record asks who replays it: it has %q:\n%s", begins, data)
		}
	}

	sh := r.prompting()
	r.line(sh, "clear; "+r.binary+" exec -- bash "+script)
	r.shows(sh, "all asked")
	if s := r.screen(sh); strings.Contains(s, "5   2") || strings.Contains(s, "]") {
		t.Errorf("by exec, the terminal answered\n%s", s)
	}
}

// TestLabKeysOfThePersonStay looks for what would change the keys of a person's terminal, or have it do
// something on their machine, in the bytes that the terminal gets.
func TestLabKeysOfThePersonStay(t *testing.T) {
	r := newRig(t)
	r.start(80, 24, "", prompt)
	a := r.attach(80, 24, "root", "", "")
	r.shows(a, ">")
	raw := filepath.Join(r.dir, "raw")
	r.tmux("pipe-pane", "-t", name(a), "cat >"+raw)
	asked := map[string]string{
		"17/6563686f":    `\033P0;1|17/6563686f0d\033\\`,
		"1061h":          `\033[?1061h`,
		"9001":           `\033[?9001h`,
		"kitty-cmd":      `\033P@kitty-cmd{}\033\\`,
		"\x1b[5i":        `\033[5i`,
		"\x1b[2h":        `\033[2h`,
		"5522":           `\033[?5522h`,
		"CopyToClip":     `\033]1337;CopyToClipboard=\007`,
		"\x1b[21t":       `\033[21t`,
		"SetUserVar":     `\033]1337;SetUserVar=a=eA==\007`,
		"9;7;":           `\033]9;7;calc\007`,
		"L2V0Yy9wYXNzd2": `\033_Ga=T,t=f;L2V0Yy9wYXNzd2Q=\033\\`,
	}
	script := "printf '"
	for _, s := range asked {
		script += s
	}
	file := filepath.Join(t.TempDir(), "script") // typed, it would be in the echo
	must(t, os.WriteFile(file, []byte(script+`\033[?1003hall sa'; echo id; read x`), 0o755))
	must(t, os.Chmod(filepath.Dir(file), 0o755))
	must(t, os.Chmod(filepath.Dir(filepath.Dir(file)), 0o755))
	r.line(a, "sh "+file)
	r.shows(a, "all said")
	var shown string
	r.eventually("the bytes are not there", func() bool {
		data, _ := os.ReadFile(raw)
		shown = string(data)
		return strings.Contains(shown, "1003h") && strings.Contains(shown, "id")
	})
	for part, s := range asked {
		if strings.Contains(shown, part) {
			t.Errorf("the terminal got %s", s)
		}
	}
	r.keys(a, "C-]")
	r.line(a, "d")
	r.shows(a, "[detached")
	r.eventually("the mouse is left on", func() bool {
		return strings.TrimSpace(r.tmux("display", "-p", "-t", name(a), "#{mouse_any_flag}")) == "0"
	})
}

// TestLabExecLeavesNoReader leaves something behind that reads from every terminal it could get, and
// types a secret afterwards.
func TestLabExecLeavesNoReader(t *testing.T) {
	r := newRig(t)
	stolen := t.TempDir()
	must(t, os.Chmod(stolen, 0o777))
	must(t, os.Chmod(filepath.Dir(stolen), 0o755))
	r.start(80, 24, "", prompt)
	sh := r.prompting()
	run := r.binary + " exec -- sh -c "
	for i, line := range []string{
		run + `'exec 5<&0; (setsid cat <&5 >%[1]s &); until [ -e %[1]s ]; do sleep 0.01; done; echo harmless-$((100+%[2]d))'`,
		run + `'exec 5<&1; (setsid cat <&5 >%[1]s &); until [ -e %[1]s ]; do sleep 0.01; done; echo harmless-$((100+%[2]d))' </dev/null`,
		run + `'exec 5</dev/tty; (setsid cat <&5 >%[1]s &); until [ -e %[1]s ]; do sleep 0.01; done; echo harmless-$((100+%[2]d)) >/dev/tty' </dev/null >/dev/null 2>&1`,
		`echo x | ` + run + `'exec 5<&2; (setsid cat <&5 >%[1]s &); until [ -e %[1]s ]; do sleep 0.01; done; echo harmless-$((100+%[2]d))'`,
		run + `'exec 5<&0; (setsid cat <&5 >%[1]s &); until [ -e %[1]s ]; do sleep 0.01; done; echo harmless-$((100+%[2]d))' | cat`,
	} {
		file := filepath.Join(stolen, fmt.Sprint(i))
		r.line(sh, "clear")
		r.line(sh, fmt.Sprintf(line, file, i))
		r.shows(sh, fmt.Sprintf("harmless-%d", 100+i))
		r.eventually("it does not end", func() bool { return strings.HasSuffix(r.screen(sh), "root#") })
		for n := range 8 {
			r.line(sh, fmt.Sprintf("echo my-secret-%d | tr a-z A-Z", n))
		}
		r.shows(sh, "MY-SECRET-7")
		if data, err := os.ReadFile(file); err != nil || strings.Contains(string(data), "secret") {
			t.Errorf("%s: it read %q, %v", line, data, err)
		}
	}
	// A question whose answer would go to the shell is not asked.
	r.line(sh, "clear")
	r.line(sh, run+`'printf "\033[c"; echo asked-$((6*7))' </dev/null; sleep 1; echo; echo $((6*7)) later`)
	r.shows(sh, "42 later")
	if shown := r.screen(sh); !strings.Contains(shown, "asked-42") || strings.Contains(shown, "[?") {
		t.Errorf("the shell got an answer:\n%s", shown)
	}
	// What it leaves on is taken back, and the old way has the terminal itself.
	r.line(sh, "clear")
	r.line(sh, run+`'printf "\033[?1003h\033[?1049h\033[5mx"; echo "this was $((6*7))"'; echo $((6*7)) back`)
	r.shows(sh, "42 back")
	if modes := strings.TrimSpace(r.tmux("display", "-p", "-t", name(sh), "#{mouse_any_flag}#{alternate_on}")); modes != "00" {
		t.Errorf("the mouse and the alternate screen are left on: %s", modes)
	}
	r.line(sh, "clear; stat -Lc own:%d:%i /dev/fd/0; "+r.binary+" exec -T -- stat -Lc T:%d:%i /dev/fd/0; "+r.binary+" exec -- stat -Lc other:%d:%i /dev/fd/0; echo $((6*7)) looked")
	r.shows(sh, "42 looked")
	found := map[string]string{}
	for _, l := range strings.Split(r.screen(sh), "\n") {
		if what, id, ok := strings.Cut(strings.TrimSpace(l), ":"); ok {
			found[what] = id
		}
	}
	if found["own"] == "" || found["own"] != found["T"] || found["own"] == found["other"] {
		t.Errorf("terminals: %v", found)
	}
}

// TestLabRecordFollowsNoLink puts a link in the place of the directory of a record, which is root's, but
// in a workspace of the agent's.
func TestLabRecordFollowsNoLink(t *testing.T) {
	r := newRig(t)
	workspace := t.TempDir()
	must(t, os.Mkdir(filepath.Join(workspace, "rec"), 0o755))
	must(t, os.Chown(workspace, 1000, 1000))
	cast := filepath.Join(workspace, "rec", "policy.txt")
	n := r.pane(80, 24, r.runLine("--record "+cast, prompt))
	r.shows(n, "[exit 64]")
	if _, err := os.Lstat(cast); !os.IsNotExist(err) {
		t.Errorf("it records below a directory of the agent's: %v", err)
	}

	// And one that could be renamed all the same: it is written where it was judged.
	must(t, os.Chown(workspace, 0, 0))
	r = newRig(t)
	p := r.start(80, 24, "--record "+cast, prompt)
	r.shows(p, ">")
	at := func(path string) string { return filepath.Join(workspace, path) }
	must(t, os.Mkdir(at("elsewhere"), 0o755))
	must(t, os.Rename(at("rec"), at("rec.old")))
	must(t, os.Symlink("elsewhere", at("rec")))
	r.must("root", "new", "other", "--", "sh", "-c", "echo recorded; exec sleep 1000")
	r.eventually("it is not recorded", func() bool {
		data, _ := os.ReadFile(at("rec.old/policy.txt.w1"))
		return strings.Contains(string(data), "recorded")
	})
	if names, err := os.ReadDir(at("elsewhere")); err != nil || len(names) > 0 {
		t.Errorf("root wrote through the link: %v, %v", names, err)
	}
}

// TestLabKeyboardIsGivenBack has the program change the keyboard, and leaves as a person with a German
// keyboard does.
func TestLabKeyboardIsGivenBack(t *testing.T) {
	r := newRig(t)
	r.start(80, 24, "", prompt)
	for _, typed := range []string{"\x1b[53;5u", "\x1b[93;7u", "\x1b[27;5;53~", "\x1b[1098::93;5u"} {
		a := r.attach(80, 24, "root", "", "")
		r.shows(a, ">")
		r.line(a, `printf '\033[>31u\033[?9001h\033[>4;2mset\033[=31u\n'`)
		r.shows(a, "\nset")
		r.tmux("send-keys", "-t", name(a), "-l", typed+"d")
		r.shows(a, "[detached")
	}
}
