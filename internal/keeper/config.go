package keeper

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/window"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Config is what flags and environment say. A flag wins over the environment.
type Config struct {
	PolicyDir        string
	SavedFile        string        // read behind the files of PolicyDir, see policy.ReadOptions
	SeenFile         string        // see policy.ReadOptions
	PhaseFile        string        // is there once setup was begun
	Phase            string        // to begin in, if no file says it: setup or run
	Given            []policy.File // what the command line adds to the files
	GivenWords       []string      // the same, as it was written
	User             string
	Selftest         string // require, warn or off
	Backend          string
	Monitor          bool // --mode monitor
	Quiet            bool
	Gateway          *Gateway // nil: the agents are in this network namespace
	EnvFile          string   // also gets what points programs at the broker; or empty
	Grace            time.Duration
	SignalTarget     string
	LogLevel         string
	UnsafeNoFirewall bool
	Session          string // auto, always or never
	Record           string // file, or empty
	RecordLimit      int64  // bytes
	Prefix           string // key of the client on the container's terminal
	KeysHint         string // how a person gets at the keys of the session, behind the last line of a start

	SessionName      string
	HostUID, HostGID string
	AssistantCmd     string
	Shell            string
	NoColor          bool
	Environ          map[string]string // the container's, for the agent

	Version   string                 // of this program
	IsSetting func(flag string) bool // run has such a flag
}

// logger writes diagnostics to w, down to level. That is raised once the agent has the terminal: lines of ours would be
// drawn over its own. What matters is in the audit log and the status as well.
func (c Config) logger(w io.Writer) (log *slog.Logger, level *slog.LevelVar) {
	level = new(slog.LevelVar)
	level.Set(c.level())
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})), level
}

func (c Config) level() slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return slog.LevelWarn
	}
	return l
}

// wantsSession: a program that is given its input or output by a pipe is to have just that.
func (c Config) wantsSession(stdin *os.File) bool {
	return c.Session == "always" ||
		c.Session == "auto" && text.IsTerminal(stdin) && text.IsTerminal(os.Stdout) && !window.InBackground(stdin)
}

// progress shows a start to the person who waits for it: a line for each part, at most eight in all, as they pass,
// each with its time. A nil progress shows nothing.
type progress struct {
	Say    func(text string)
	part   string
	long   bool // how long it takes was shown
	begun  time.Time
	opened time.Time
	keys   string // what the last line says of the session's
}

// NewProgress shows on w, if it is a terminal and nobody asked for silence, or for diagnostics, which say the same.
func NewProgress(c Config, w *os.File) *progress {
	if c.Quiet || c.level() < slog.LevelWarn || !text.IsTerminal(w) {
		return nil
	}
	return &progress{Say: func(text string) { _, _ = io.WriteString(w, text) }}
}

// enter begins a step; steps of one part share a line.
func (p *progress) enter(part string) {
	if p == nil || part == p.part {
		return
	}
	if p.opened.IsZero() {
		p.opened = time.Now()
	}
	p.close()
	p.part, p.begun, p.long = part, time.Now(), false
	p.Say(begunLine(part))
}

func (p *progress) close() {
	if p.part != "" {
		p.again()
		p.Say(fmt.Sprintf("%8s\n", tookText(time.Since(p.begun))))
		p.part = ""
	}
}

// still shows what the part waits for, on its own line, which the next words take the place of.
func (p *progress) still(w state.Waiting) {
	if p == nil || p.part == "" {
		return
	}
	p.long = true
	p.again()
	line := fmt.Sprintf("%8s  %s", text.Shortly(time.Since(p.begun)), text.Clean(w.Limits()))
	line, _ = text.Cut(line, 79-len(begunLine(p.part)))
	p.Say(line)
}

// again begins the line of the part anew, if there is more on it.
func (p *progress) again() {
	if p.long {
		p.Say("\r\x1b[K" + begunLine(p.part))
	}
}

func begunLine(part string) string { return fmt.Sprintf("agent-init: %-24s ", part) }

// note is a line by itself.
func (p *progress) note(what string) {
	if p != nil {
		p.close()
		p.Say("agent-init: " + text.Clean(what) + "\n")
	}
}

func (p *progress) done(what string) {
	if p == nil {
		return
	}
	p.close()
	p.Say(fmt.Sprintf("agent-init: %-24s %8s%s\n", what, tookText(time.Since(p.opened)), p.keys))
}

func (p *progress) failed() {
	if p != nil && p.part != "" {
		p.again()
		p.Say("  failed\n")
		p.part = ""
	}
}

func tookText(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
