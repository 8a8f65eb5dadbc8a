package keeper

import (
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/window"
)

// Config is what flags and environment say. A flag wins over the environment.
type Config struct {
	PolicyDir        string
	User             string
	Selftest         string // require, warn or off
	Backend          string
	Monitor          bool // --mode monitor
	Quiet            bool
	Grace            time.Duration
	SignalTarget     string
	LogLevel         string
	UnsafeNoFirewall bool
	Session          string // auto, always or never
	Record           string // file, or empty
	RecordLimit      int64  // bytes
	Prefix           string // key of the client on the container's terminal

	SessionName      string
	HostUID, HostGID string
	AssistantCmd     string
	Shell            string
	NoColor          bool
	Strange          []string          // variables that are no settings
	Environ          map[string]string // the container's, for the agent

	Version   string                 // of this program
	IsSetting func(flag string) bool // run has such a flag
}

// logger writes diagnostics to w until muted is set: once the agent has the
// terminal, lines of ours would be drawn over its own. What matters is in the
// audit log and the status as well.
func (c Config) logger(w io.Writer, muted *atomic.Bool) *slog.Logger {
	return slog.New(slog.NewTextHandler(mutable{w, muted}, &slog.HandlerOptions{Level: c.level(), ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func (c Config) level() slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return slog.LevelWarn
	}
	return l
}

// wantsSession: a program that is given its input or output by a pipe is to
// have just that.
func (c Config) wantsSession(stdin *os.File) bool {
	switch c.Session {
	case "always":
		return true
	case "auto":
		return text.IsTerminal(stdin) && text.IsTerminal(os.Stdout) && !window.InBackground(stdin)
	}
	return false
}

type mutable struct {
	io.Writer
	muted *atomic.Bool
}

func (m mutable) Write(p []byte) (int, error) {
	if m.muted.Load() {
		return len(p), nil
	}
	return m.Writer.Write(p)
}

func environList(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	return out
}
