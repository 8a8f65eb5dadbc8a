package lab

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab/fakellm"
	"github.com/agent-init/agent-init/internal/netns"
)

// Addresses of the DNS servers that a Box's resolv.conf names, and of the
// names that are served from the start (Names).
var (
	Upstream4 = netip.MustParseAddr("192.0.2.53")
	Upstream6 = netip.MustParseAddr("2001:db8::53")
)

// Names returns the names that every lab serves from the start, each with an
// IPv4 and an IPv6 address: an LLM's API (backed by fakellm), two good names,
// one that shares ok.test's addresses, and one that belongs to the attacker.
func Names() map[string][]netip.Addr {
	pair := func(v4, v6 string) []netip.Addr {
		return []netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)}
	}
	return map[string][]netip.Addr{
		"api.anthropic.com": pair("45.30.0.1", "2a0f:30::1"),
		"ok.test":           pair("45.30.0.10", "2a0f:30::10"),
		"ok2.test":          pair("45.30.0.11", "2a0f:30::11"),
		"shared.test":       pair("45.30.0.10", "2a0f:30::10"),
		"evil.test":         pair("45.30.66.6", "2a0f:30:66::6"),
		"example.com":       pair("45.30.66.7", "2a0f:30:66::7"),
	}
}

// Options of a Lab. The zero value is good.
type Options struct {
	// Latency is added to every DNS answer.
	Latency time.Duration
	// ToolDir holds ready-built labbox and poke; empty: the directory that
	// AGENT_INIT_LAB_TOOLS names has them, or they are built.
	ToolDir string
	// Within is the path of a network namespace to make the internet of, in place
	// of a new one: that of a container engine. See Attach.
	Within string
}

// Lab is one internet and the boxes that are joined to it.
type Lab struct {
	Internet *netns.NS // every address is local here
	DNS      *DNS      // all DNS servers of the internet
	Web      *Web      // all HTTP and TLS servers
	CA       *CA       // signs their certificates

	tb      TB
	dir     string // removed by Close
	sinks   *sinks
	spawner *spawner

	mu      sync.Mutex
	closers []func() error
	boxes   []*Box
	closed  bool
}

// New starts an internet. It is closed by TB.Cleanup, or sooner by Close.
func New(tb TB, opts Options) *Lab {
	tb.Helper()
	l := &Lab{tb: tb}
	tb.Cleanup(l.Close)
	if err := l.start(opts); err != nil {
		tb.Fatalf("lab: %v", err)
	}
	return l
}

func (l *Lab) start(opts Options) (err error) {
	if l.dir, err = os.MkdirTemp("", "agent-init-lab-"); err != nil {
		return err
	}
	if err := os.Chmod(l.dir, 0o755); err != nil {
		return err
	}
	if err := l.installTools(opts.ToolDir); err != nil {
		return err
	}
	if l.CA, err = NewCA(); err != nil {
		return err
	}
	if err := os.WriteFile(l.CAFile(), l.CA.PEM, 0o644); err != nil {
		return err
	}
	// What starts in a box is not to inherit what this process has from who started it.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep descriptors out of the boxes: %w", err)
	}
	ignoreNothing()
	l.spawner = newSpawner()
	l.onClose(l.spawner.close)
	if err := l.startInternet(opts.Within); err != nil {
		return fmt.Errorf("set up the internet: %w", err)
	}
	if l.DNS, err = startDNS(l.Internet, opts.Latency); err != nil {
		return fmt.Errorf("start dns: %w", err)
	}
	l.onClose(l.DNS.close)
	if l.sinks, err = startSinks(l.Internet); err != nil {
		return fmt.Errorf("start sinks: %w", err)
	}
	l.onClose(l.sinks.close)
	if l.Web, err = startWeb(l.Internet, l.CA, l.sinks); err != nil {
		return fmt.Errorf("start web servers: %w", err)
	}
	l.onClose(l.Web.close)
	for name, addrs := range Names() {
		l.DNS.Set(name, Answer{Addrs: addrs})
	}
	l.Web.Handle("api.anthropic.com", fakellm.New())
	return nil
}

// ignoreNothing keeps what nohup, or a script's &, had this process ignore out of the boxes: what is caught is reset as a
// command is executed. It stays so for good, since other labs may have begun meanwhile.
var ignoreNothing = sync.OnceFunc(func() {
	for _, sig := range []os.Signal{unix.SIGHUP, unix.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
})

func (l *Lab) startInternet(within string) (err error) {
	if within == "" {
		if l.Internet, err = netns.New(); err != nil {
			return err
		}
		l.onClose(l.Internet.Close)
		return l.Internet.Do(setupInternet)
	}
	if l.Internet, err = netns.Open(within); err != nil {
		return err
	}
	l.onClose(l.Internet.Close)
	if err := mustBeAnotherNS(l.Internet); err != nil {
		return err
	}
	l.onClose(func() error { return l.Internet.Do(dropSinkRules) })
	return l.Internet.Do(setupBorrowed)
}

func (l *Lab) installTools(from string) (err error) {
	if from = cmp.Or(from, os.Getenv("AGENT_INIT_LAB_TOOLS")); from == "" {
		if from, err = buildTools(); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(l.dir, "tools"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"labbox", "poke"} {
		if err := linkFile(filepath.Join(from, name), l.Tool(name)); err != nil {
			return err
		}
	}
	return nil
}

// Tool is the path of a ready-built tool of the lab, "poke" or "labbox".
func (l *Lab) Tool(name string) string { return filepath.Join(l.dir, "tools", name) }

// CAFile is the path, on the machine, of the CA's certificate in PEM.
func (l *Lab) CAFile() string { return filepath.Join(l.dir, "ca.pem") }

func (l *Lab) onClose(fn func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closers = append(l.closers, fn)
}

// Close kills what runs in the boxes, stops the servers and lets the
// namespaces go. Calling it again does nothing.
func (l *Lab) Close() {
	l.tb.Helper()
	l.mu.Lock()
	closers, closed := l.closers, l.closed
	l.closers, l.closed = nil, true
	l.mu.Unlock()
	if closed {
		return
	}
	for i := len(closers) - 1; i >= 0; i-- {
		if err := closers[i](); err != nil {
			l.tb.Errorf("lab: close: %v", err)
		}
	}
	if l.dir != "" {
		if err := os.RemoveAll(l.dir); err != nil {
			l.tb.Errorf("lab: close: %v", err)
		}
	}
}
