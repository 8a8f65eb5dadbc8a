package session

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// agentCLI is an agent with a full-screen interface. What it is told keeps it from asking
// who it is: it has a key, and nobody to talk to.
type agentCLI struct {
	command string            // with {} for the directory that agents were unpacked to
	env     string            // what it needs besides what all have
	files   map[string]string // of its home
	ready   string            // is on its first screen
	menu    string            // is on the screen once a slash was typed
	moving  *regexp.Regexp    // what is not the same from one start to the next
	live    *regexp.Regexp    // the first row that it draws again; above that, on the main screen, each terminal keeps what it likes at a resize
}

const fakeKey = "sk-ant-test-0123456789abcdefghijklmnop"

func agentCLIs() map[string]agentCLI {
	return map[string]agentCLI{
		"claude": {
			command: "{}/claude/claude", ready: "Claude Code v", menu: "/add-dir",
			env: "CLAUDE_CONFIG_DIR=/home/agent/.claude DISABLE_AUTOUPDATER=1 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 " +
				"ANTHROPIC_BASE_URL=http://127.0.0.1:9 ANTHROPIC_API_KEY=" + fakeKey,
			files: map[string]string{".claude/.claude.json": `{"hasCompletedOnboarding":true,"theme":"dark","customApiKeyResponses":{"approved":["` + fakeKey[len(fakeKey)-20:] +
				`"],"rejected":[]},"projects":{"/home/agent/work":{"hasTrustDialogAccepted":true,"hasCompletedProjectOnboarding":true}}}`},
		},
		"codex": {
			command: "{}/codex/bin/codex", ready: "OpenAI Codex", menu: "/permissions",
			env: "CODEX_HOME=/home/agent/.codex OPENAI_API_KEY=" + fakeKey,
			files: map[string]string{".codex/config.toml": `model = "gpt-5.2"
model_provider = "nobody"
sandbox_mode = "danger-full-access"
approval_policy = "on-request"
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
api_key_model_discovery = false
plugins = false
[model_providers.nobody]
name = "nobody"
base_url = "http://127.0.0.1:9/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
[projects."/home/agent/work"]
trust_level = "trusted"
`},
		},
		"gemini":            geminiCLI(`"hideTips":true,"useAlternateBuffer":true`, nil),
		"gemini-mainscreen": geminiCLI(`"hideTips":true,"useAlternateBuffer":false`, regexp.MustCompile(`^ Shift\+Tab to`)),
		"opencode": {
			command: "{}/opencode/bin/opencode", ready: "ctrl+p commands", menu: "/editor",
			env: "ANTHROPIC_API_KEY=" + fakeKey + " OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_MODELS_FETCH=1 OPENCODE_DISABLE_LSP_DOWNLOAD=1 " +
				"OPENCODE_DISABLE_DEFAULT_PLUGINS=1 OPENCODE_DISABLE_SHARE=1",
			// A tip comes and goes, and what it suggests to ask is another each time.
			moving: regexp.MustCompile(`Ask anything… .*`),
		},
	}
}

// geminiCLI is Gemini CLI, which can be told which screen it draws on.
func geminiCLI(ui string, live *regexp.Regexp) agentCLI {
	return agentCLI{
		command: "{}/node/bin/node {}/gemini/bundle/gemini.js", ready: "Type your message", menu: "compress", live: live,
		env: "GEMINI_CLI_TRUST_WORKSPACE=true GEMINI_API_KEY=" + fakeKey,
		files: map[string]string{".gemini/settings.json": `{"security":{"auth":{"selectedType":"gemini-api-key"}},"ui":{` + ui + `},` +
			`"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false},"privacy":{"usageStatisticsEnabled":false}}`},
	}
}

// cliDir is where the box has the agents.
const cliDir = "/run/clis"

// homeScript gives the box a home for the agent with the files of a directory, and a
// /tmp of its own in which only agent-init is.
const homeScript = `mkdir -p /run/keep ` + cliDir + ` && mount --bind %[2]s /run/keep && mount --bind %[3]s ` + cliDir + ` && mount -t tmpfs tmpfs /home && mkdir -p /home/agent/work && cp -r %[1]s/. /home/agent/ &&
chown -R 1000:1000 /home/agent && ip link set lo up && mount -t tmpfs -o mode=1777 tmpfs /tmp && mkdir -p %[2]s && mount --bind /run/keep %[2]s && cd / && exec "$@"`

// needCLIs returns where test/screens.sh has unpacked the agents, or skips the test; where
// AGENT_INIT_MUST_RUN=1 is set it fails instead.
func needCLIs(t *testing.T) string {
	t.Helper()
	lab.Require(t)
	dir := os.Getenv("AGENT_INIT_AGENT_CLIS")
	if dir == "" {
		if os.Getenv("AGENT_INIT_MUST_RUN") == "1" {
			t.Fatal("AGENT_INIT_AGENT_CLIS is not set, see test/screens.sh, and AGENT_INIT_MUST_RUN=1 forbids to skip")
		}
		t.Skip("AGENT_INIT_AGENT_CLIS is not set, see test/screens.sh")
	}
	return dir
}

// home makes the agent's home, with a script in it that starts the agent.
func (r *rig) home(dir string, c agentCLI) (home, script string) {
	r.Helper()
	home = filepath.Join(r.dir, "home")
	files := map[string]string{"start": "#!/bin/sh\ncd /home/agent/work\nexec env -i PATH=" + dir + "/node/bin:/usr/bin:/bin HOME=/home/agent USER=agent SHELL=/bin/sh " +
		"TERM=xterm-256color COLORTERM=truecolor LANG=C.UTF-8 " + c.env + " " + strings.ReplaceAll(c.command, "{}", dir) + "\n"}
	for name, text := range c.files {
		files[name] = text
	}
	for name, text := range files {
		path := filepath.Join(home, name)
		must(r.T, os.MkdirAll(filepath.Dir(path), 0o755))
		must(r.T, os.WriteFile(path, []byte(text), 0o755))
	}
	return home, "/home/agent/start"
}

// TestContainerAgentScreens holds what an agent's interface looks like in a session against
// the same agent on a terminal of its own, without agent-init, cell by cell.
func TestContainerAgentScreens(t *testing.T) {
	dir := needCLIs(t)
	for name, c := range agentCLIs() {
		if wanted := os.Getenv("AGENTS"); wanted != "" && !strings.Contains(" "+wanted+" ", " "+name+" ") {
			continue
		}
		t.Run(name, func(t *testing.T) { testScreens(t, dir, c) })
	}
}

func testScreens(t *testing.T, dir string, c agentCLI) {
	r := newRig(t)
	home, script := r.home(cliDir, c)
	prepare := quote(fmt.Sprintf(homeScript, home, filepath.Dir(r.binary), dir))
	// A shell stays above it: --kill-child does not reach what has taken on another uid.
	direct := r.pane(120, 40, fmt.Sprintf("unshare -npfm --kill-child sh -c %s sh sh -c %s sh sh -c 'setpriv --reuid=%s --regid=%[3]s --clear-groups -- %s; exit $?'",
		quote(boxScript), prepare, agentUID, script))
	inside := r.startBox(120, 40, "sh -c "+prepare+" sh", "", script)
	var live *regexp.Regexp
	same := func(what string, panes ...int) {
		t.Helper()
		r.same(what, c.moving, live, direct, panes...)
	}
	both := func(do func(pane int)) { do(direct); do(inside) }

	both(func(p int) {
		for range startPatience { // some take their time
			if r.comes(func() bool { return strings.Contains(r.screen(p), c.ready) || strings.Contains(r.screen(p), "[exit ") }) {
				break
			}
		}
		if strings.Contains(r.screen(p), c.ready) {
			return
		}
		r.Fatalf("pane %d does not show %q", p, c.ready)
	})
	same("the first screen", inside)
	both(func(p int) { r.tmux("send-keys", "-t", name(p), "-l", "ünïcödé 你好 👍 text") })
	both(func(p int) { r.shows(p, "你好 👍 text") })
	same("typed", inside)
	both(func(p int) { r.keys(p, "BSpace", "BSpace", "Left", "Left", "Home", "End") })
	both(func(p int) { r.hides(p, "👍 text") })
	same("edited", inside)
	both(func(p int) { r.keys(p, "C-u") })
	both(func(p int) { r.hides(p, "👍") })
	both(func(p int) { r.line0(p, "/") })
	both(func(p int) { r.shows(p, c.menu) })
	same("a menu", inside)
	both(func(p int) { r.keys(p, "Down", "Down", "Up") })
	same("moved in the menu", inside)

	resize := func(p, cols, rows int) {
		r.tmux("resize-window", "-t", name(p), "-x", fmt.Sprint(cols), "-y", fmt.Sprint(rows))
	}
	both(func(p int) { resize(p, 80, 24) })
	live = c.live
	same("smaller", inside)
	r.keys(inside, "C-]", "d")
	r.shows(inside, "detached; the session goes on")
	r.keys(inside, "x")
	same("come back", inside)
	second := r.attach(80, 24, "root", "", "")
	same("a second client", second, inside)
	tiny := r.attach(60, 15, "root", "", "-r")
	r.eventually("the small one shows nothing", func() bool { return r.screen(tiny) != "" })
	same("with one of another size that only looks", second, inside)
	r.keys(second, "C-]", "d")
	r.shows(second, "detached from window 0")
	both(func(p int) { r.keys(p, "Escape") })
	both(func(p int) { r.hides(p, c.menu) })
	same("the menu closed", inside) // also: Escape and the prefix at once would be another key
	r.keys(inside, "C-]", "d")
	r.shows(inside, "detached; the session goes on")

	// While nobody looks, at another size: what comes back is the agent's answer to both.
	resize(direct, 132, 43)
	resize(inside, 132, 43)
	r.keys(inside, "x")
	same("come back at another size", inside)
	both(func(p int) { r.tmux("send-keys", "-t", name(p), "-l", "after all") })
	both(func(p int) { r.shows(p, "after all") })
	same("typed again", inside)
}

// startPatience is how many times longer than for all else an agent's start is waited for.
const startPatience = 6

// line0 types a text without Enter.
func (r *rig) line0(n int, text string) {
	r.Helper()
	r.tmux("send-keys", "-t", name(n), "-l", text)
}

// same waits until panes look as the first does, and know the same of their terminal.
func (r *rig) same(what string, moving, live *regexp.Regexp, as int, panes ...int) {
	r.Helper()
	for _, p := range panes {
		var difference string
		ok := r.comes(func() bool {
			want, got := r.picture(as, moving, live), r.picture(p, moving, live)
			difference = want.differs(got)
			return difference == ""
		})
		if !ok {
			r.Fatalf("%s: %s\n%s\n--- and in the session\n%s", what, difference, r.screen(as), r.screen(p))
		}
	}
}

// picture is what a pane shows, cell by cell.
type picture struct {
	cells        [][]string
	state, title string
}

const paneState = "cursor #{cursor_x},#{cursor_y} visible=#{cursor_flag} alternate=#{alternate_on} insert=#{insert_flag} app-cursor=#{keypad_cursor_flag} " +
	"app-keypad=#{keypad_flag} wrap=#{wrap_flag} mouse=#{mouse_standard_flag}#{mouse_button_flag}#{mouse_all_flag}#{mouse_sgr_flag}"

func (r *rig) picture(n int, moving, live *regexp.Regexp) picture {
	r.Helper()
	ask := func(format string) string {
		return strings.TrimSpace(r.tmux("display-message", "-p", "-t", name(n), format))
	}
	p := picture{state: ask(paneState), title: ask("#{pane_title}")}
	style, begins := style{}, 0
	for y, line := range strings.Split(strings.TrimSuffix(r.tmux("capture-pane", "-e", "-p", "-N", "-t", name(n)), "\n"), "\n") {
		text := sgr.ReplaceAllString(line, "")
		if live != nil && live.MatchString(text) {
			begins = y
		}
		if moving != nil && moving.MatchString(text) {
			p.cells = append(p.cells, []string{moving.ReplaceAllString(text, "…")})
			style.read(line)
			continue
		}
		p.cells = append(p.cells, style.read(line))
	}
	if live != nil {
		p.cells = p.cells[begins:]
		last := func() []string { return p.cells[len(p.cells)-1] }
		for len(p.cells) > 0 && !slices.ContainsFunc(last(), func(c string) bool { return c != blank }) {
			p.cells = p.cells[:len(p.cells)-1]
		}
		// The cursor by its place among these rows.
		var x, y int
		fmt.Sscanf(p.state, "cursor %d,%d", &x, &y)
		_, rest, _ := strings.Cut(p.state, " visible")
		p.state = fmt.Sprintf("cursor %d,%d below visible%s", x, y-begins, rest)
	}
	return p
}

var sgr = regexp.MustCompile("\x1b\\[([0-9;:]*)m")

func (p picture) differs(q picture) string {
	if p.state != q.state {
		return fmt.Sprintf("%s\nis in the session %s", p.state, q.state)
	}
	if p.title != q.title && !graphics(p.title) && !graphics(q.title) {
		return fmt.Sprintf("the title %q is %q in the session", p.title, q.title)
	}
	if len(p.cells) != len(q.cells) {
		return fmt.Sprintf("%d rows are %d in the session", len(p.cells), len(q.cells))
	}
	for y := range p.cells {
		for x := range max(len(p.cells[y]), len(q.cells[y])) {
			want, got := blank, blank
			if x < len(p.cells[y]) {
				want = p.cells[y][x]
			}
			if x < len(q.cells[y]) {
				got = q.cells[y][x]
			}
			if want != got {
				return fmt.Sprintf("row %d, character %d: %s is %s in the session", y, x, want, got)
			}
		}
	}
	return ""
}

// graphics tells kitty's question for images, which tmux takes for a title and other
// terminals, and the model, do not.
func graphics(title string) bool { return strings.HasPrefix(title, "Gi=") }

// style is what a run of SGR sequences has set: of each kind the sequence in force.
type style map[string]string

const blank = "\" \" map[]"

// read returns a line's characters, each with its style.
func (s style) read(line string) (cells []string) {
	for line != "" {
		if at := sgr.FindStringSubmatchIndex(line); at != nil && at[0] == 0 {
			s.apply(line[at[2]:at[3]])
			line = line[at[1]:]
			continue
		}
		if line[0] == 0x1b || line[0] == 0x0e || line[0] == 0x0f { // character sets
			line = line[1:]
			continue
		}
		char := []rune(line)[0]
		line = line[len(string(char)):]
		cells = append(cells, fmt.Sprintf("%q %v", string(char), map[string]string(s)))
	}
	return cells
}

func (s style) apply(codes string) {
	f := strings.Split(codes, ";")
	for i := 0; i < len(f); i++ {
		n := f[i]
		switch {
		case n == "" || n == "0":
			clear(s)
		case n == "38" || n == "48" || n == "58":
			last := i + 2
			if i+1 < len(f) && f[i+1] == "2" {
				last = i + 4
			}
			last = min(last, len(f)-1)
			s[n] = strings.Join(f[i:last+1], ";")
			i = last
		case len(n) == 2 && n[0] == '3' || len(n) == 2 && n[0] == '9':
			s["38"] = n
		case len(n) == 2 && n[0] == '4' || len(n) == 3:
			s["48"] = n
		default:
			s[n] = "on"
		}
		for _, kind := range []string{"38", "48"} {
			if s[kind] == "39" || s[kind] == "49" {
				delete(s, kind)
			}
		}
	}
}
