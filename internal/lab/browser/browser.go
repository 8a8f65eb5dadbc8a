// Package browser drives a real Chromium without a screen, for tests of pages. It is in a network namespace of its own,
// with nothing but loopback: Chromium asks its maker's servers for things all by itself.
//
// It speaks the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/) over two pipes, so that no port
// is open.
package browser

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/internal/netns"
)

// patience is how long a page may take for one thing, on a machine that has others to do.
const patience = 2 * time.Minute

// Browser is a running one.
type Browser struct {
	tb   testing.TB
	to   io.Writer
	mu   sync.Mutex // guards what follows, and the order of what is sent
	last int
	wait map[int]chan message
	tabs map[string]*Tab
	gone error
}

type message struct {
	ID        int             `json:"id,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Enter puts the calling goroutine into a namespace of its own with loopback up, where servers can be reached that it
// opens. The test ends here if the machine lacks the browser or the rights.
func Enter(tb testing.TB) {
	tb.Helper()
	mustrun.Tool(tb, "chromium")
	netns.Enter(tb)
	if err := up("lo"); err != nil {
		tb.Fatalf("loopback: %v", err)
	}
}

// up sets an interface up (netdevice(7)).
func up(name string) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
}

// Start starts one, after Enter in the same goroutine. Each name of elsewhere that it is told leads to 127.0.0.1.
func Start(tb testing.TB, elsewhere ...string) *Browser {
	tb.Helper()
	theirs, to, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	from, answers, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	// Root has no sandbox of Chromium's. What it shows here are the tests' own pages.
	var rules []string
	for _, name := range elsewhere {
		rules = append(rules, "MAP "+name+" 127.0.0.1")
	}
	profile := tb.TempDir()
	cmd := exec.Command(mustrun.Tool(tb, "chromium"), "--host-resolver-rules="+strings.Join(rules, ","), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-extensions", "--hide-scrollbars", "--force-device-scale-factor=1",
		"--user-data-dir="+profile, "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+profile, "XDG_CONFIG_HOME="+profile, "XDG_CACHE_HOME="+profile) // it writes there, too
	cmd.ExtraFiles = []*os.File{theirs, answers}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	theirs.Close()
	answers.Close()
	b := &Browser{tb: tb, to: to, wait: map[int]chan message{}, tabs: map[string]*Tab{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(from)
	}()
	tb.Cleanup(func() {
		b.send("", "Browser.close", nil)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // helpers write into the profile until they end
		to.Close()
		from.Close()
		<-read
	})
	return b
}

// read gives each message to who waits for it, until the browser ends.
func (b *Browser) read(from io.Reader) {
	r := bufio.NewReader(from)
	for {
		raw, err := r.ReadBytes(0)
		var m message
		if err == nil {
			err = json.Unmarshal(raw[:len(raw)-1], &m)
		}
		b.mu.Lock()
		if err != nil {
			b.gone = fmt.Errorf("the browser has ended: %w", err)
			for _, c := range b.wait {
				close(c)
			}
			b.wait = nil
			b.mu.Unlock()
			return
		}
		c, tab := b.wait[m.ID], b.tabs[m.SessionID]
		if m.ID != 0 {
			delete(b.wait, m.ID)
		}
		b.mu.Unlock()
		switch {
		case c != nil:
			c <- m
		case m.ID == 0 && tab != nil:
			tab.hear(m)
		}
	}
}

func (b *Browser) send(session, method string, params any) (chan message, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone != nil {
		return nil, b.gone
	}
	b.last++
	c := make(chan message, 1)
	b.wait[b.last] = c
	raw, err = json.Marshal(message{ID: b.last, Method: method, Params: raw, SessionID: session})
	if err == nil {
		_, err = b.to.Write(append(raw, 0))
	}
	return c, err
}

// call asks, and waits for the answer.
func (b *Browser) call(session, method string, params, into any) error {
	c, err := b.send(session, method, params)
	if err != nil {
		return err
	}
	select {
	case m, ok := <-c:
		switch {
		case !ok:
			return b.gone
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case into != nil:
			return json.Unmarshal(m.Result, into)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s: no answer within %v", method, patience)
	}
}

// Tab opens a page, with a profile of its own: without the cookies of others.
func (b *Browser) Tab() *Tab {
	b.tb.Helper()
	var context struct{ BrowserContextID string }
	b.must(b.call("", "Target.createBrowserContext", map[string]any{}, &context))
	return b.tab(context.BrowserContextID)
}

func (b *Browser) tab(context string) *Tab {
	b.tb.Helper()
	var target struct{ TargetID string }
	b.must(b.call("", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": context}, &target))
	var session struct{ SessionID string }
	b.must(b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session))
	t := &Tab{b: b, session: session.SessionID, context: context}
	b.mu.Lock()
	b.tabs[t.session] = t
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		t.must(domain+".enable", nil, nil)
	}
	return t
}

// Pages are the addresses of all tabs that are open.
func (b *Browser) Pages() (addresses []string) {
	b.tb.Helper()
	var r struct{ TargetInfos []struct{ Type, URL string } }
	b.must(b.call("", "Target.getTargets", map[string]any{}, &r))
	for _, t := range r.TargetInfos {
		if t.Type == "page" {
			addresses = append(addresses, t.URL)
		}
	}
	return addresses
}

func (b *Browser) must(err error) {
	b.tb.Helper()
	if err != nil {
		b.tb.Fatal(err)
	}
}

// sorted are the texts of a set.
func sorted(set map[string]bool) (out []string) {
	for s := range set {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}
