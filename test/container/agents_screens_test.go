package container

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/fakellm"
)

// screenSpec is how a person works with an agent on a terminal.
type screenSpec struct {
	args   []string          // after the image's command
	asks   [][2]string       // what it asks at its first start: a text of the screen, and the key that takes it away
	ready  string            // is on the screen where it takes a prompt
	menu   string            // is on the screen once a slash was typed; if it is empty, pictures are not compared
	moving *regexp.Regexp    // what is not the same from one start to the next
	live   *regexp.Regexp    // on the main screen, the first row that it draws again: above it is agent-init's start, and what a resize made of the rest
	files  map[string]string // mounted, by their paths in the container
	end    string            // what is typed to end it
	sleep  []string          // the keys upon which it suspends itself
}

// onScreen is what an agent's image was seen to do on a terminal.
type onScreen struct {
	inside  string          // the container of the confined agent, which goes on
	queries func() []string // what the confined agent asked for so far
	alone   []string        // what the same agent asked for that was not confined
	end     func()
}

// testScreens starts an agent's image twice, as its page says: confined, in a session, and beside it without agent-init, on a
// terminal of its own. Both get the same keys, have to look the same, and answer a prompt. The confined one goes on: it is for
// the caller to end.
func testScreens(t *testing.T, e *engine, n *internet, a agentSpec, image string, c screenSpec) onScreen {
	s := newScreens(t)
	common := args(agent(t, n), a.credentials(), []string{"-e", "TERM=xterm-256color", "-e", "COLORTERM=truecolor"}, mounts(t, c.files))
	var command []string
	if err := json.Unmarshal([]byte(e.must(t, "inspect", "--format", "{{json .Config.Cmd}}", image)), &command); err != nil {
		t.Fatal(err)
	}
	command = args(command, c.args)
	alone, confined := e.name(t), e.name(t)
	direct := s.docker(120, 40, args([]string{"run", "-it", "--name", alone, "--cap-drop=ALL", "--user=agent", "--entrypoint=" + command[0]},
		common, []string{image}, command[1:])...)
	inside := s.docker(120, 40, args([]string{"run", "-it", "--name", confined}, privileges(), allow(t, a.allow+"\n"), byName(t, a), common, []string{image}, command)...)
	address := func(container string) (ip netip.Addr) {
		s.eventually(container+" has no address", func() (ok bool) {
			var err error
			ip, err = netip.ParseAddr(strings.TrimSpace(e.docker("inspect", "--format", "{{.NetworkSettings.IPAddress}}", container).stdout))
			return err == nil
		})
		return ip
	}
	addressAlone, addressConfined := address(alone), address(confined)
	for _, p := range []int{direct, inside} {
		for _, ask := range c.asks {
			s.answers(p, ask[0], ask[1])
		}
		s.shows(p, c.ready)
	}
	if c.menu != "" {
		s.compare(c, confined, direct, inside)
	}
	s.suspend(c, inside) // the other has nobody to resume it
	for _, p := range []int{direct, inside} {
		s.enters(p, question, fakellm.Text)
	}
	end := func(p int) { s.enters(p, c.end, "[exit 0]") }
	end(direct)
	return onScreen{inside: confined, alone: n.askedBy(addressAlone), end: func() { end(inside) },
		queries: func() []string { return n.askedBy(addressConfined) }}
}

// suspend has the agent suspend itself. What is typed then may be shown by the terminal itself: only an answer shows that
// the agent has gone on.
func (s *screens) suspend(c screenSpec, pane int) {
	s.Helper()
	for _, key := range c.sleep {
		s.keys(pane, key)
	}
	s.shows(pane, c.ready)
}

// compare holds the pane of a session against that of a terminal, cell by cell.
func (s *screens) compare(c screenSpec, container string, direct, inside int) {
	s.Helper()
	same := func(what string, panes ...int) {
		s.Helper()
		s.same(what, c.moving, c.live, direct, panes...)
	}
	both := func(do func(pane int)) { do(direct); do(inside) }

	same("the first screen", inside)
	both(func(p int) { s.types(p, "ünïcödé 你好 👍 text") })
	both(func(p int) { s.shows(p, "你好 👍 text") })
	same("typed", inside)
	both(func(p int) { s.keys(p, "BSpace", "BSpace", "Left", "Left", "Home", "End") })
	both(func(p int) { s.hides(p, "👍 text") })
	same("edited", inside)
	both(func(p int) { s.keys(p, "C-u") })
	both(func(p int) { s.hides(p, "👍") })
	menu := func() {
		both(func(p int) { s.types(p, "/") })
		both(func(p int) { s.shows(p, c.menu) })
	}
	menu()
	// Some add to a menu what they have loaded meanwhile, but to none that is open.
	for range 3 {
		if s.differ(20*time.Second, c.moving, c.live, direct, inside) == "" {
			break
		}
		both(func(p int) { s.keys(p, "C-u") })
		both(func(p int) { s.hides(p, c.menu) })
		menu()
	}
	same("a menu", inside)
	both(func(p int) { s.keys(p, "Down", "Down", "Up") })
	same("moved in the menu", inside)

	both(func(p int) { s.resize(p, 80, 24) })
	same("smaller", inside)
	s.keys(inside, "C-]", "d")
	s.shows(inside, "detached; the session goes on")
	s.keys(inside, "x")
	same("come back", inside)
	second := s.docker(80, 24, "exec", "-it", container, "/usr/local/bin/agent-init", "attach")
	same("a second client", second, inside)
	small := s.docker(60, 15, "exec", "-it", container, "/usr/local/bin/agent-init", "attach", "-r")
	s.eventually("the small one shows nothing", func() bool { return s.screen(small) != "" })
	same("with one of another size that only looks", second, inside)
	s.keys(second, "C-]", "d")
	s.shows(second, "detached from window 0")
	both(func(p int) { s.keys(p, "Escape") })
	both(func(p int) { s.hides(p, c.menu) })
	same("the menu closed", inside) // also: Escape and the prefix at once would be another key
	s.keys(inside, "C-]", "d")
	s.shows(inside, "detached; the session goes on")

	// While nobody looks, at another size: what comes back is the agent's answer to both.
	both(func(p int) { s.resize(p, 132, 43) })
	s.keys(inside, "x")
	same("come back at another size", inside)
	both(func(p int) { s.types(p, "after all") })
	both(func(p int) { s.shows(p, "after all") })
	same("typed again", inside)
	both(func(p int) { s.keys(p, "C-u") })
	both(func(p int) { s.hides(p, "after all") })
}

// mounts are the arguments that mount files, of these texts, at these paths.
func mounts(t *testing.T, files map[string]string) (options []string) {
	t.Helper()
	dir := t.TempDir()
	for path, text := range files {
		name := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		options = append(options, "-v", name+":"+path)
	}
	return options
}
