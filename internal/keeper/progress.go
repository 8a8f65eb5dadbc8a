package keeper

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/session/attach"
)

// progress shows a start to the person who waits for it: a line for each part,
// at most eight in all, as they pass, each with its time. A nil progress shows
// nothing.
type progress struct {
	Say    func(text string)
	part   string
	begun  time.Time
	opened time.Time
	keys   string // what the last line says of the session's
}

// NewProgress shows on w, if it is a terminal and nobody asked for silence, or for
// diagnostics, which say the same.
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
	now := time.Now()
	if p.opened.IsZero() {
		p.opened = now
	}
	p.close(now)
	p.part, p.begun = part, now
	p.Say(fmt.Sprintf("agent-init: %-24s ", part))
}

func (p *progress) close(now time.Time) {
	if p.part != "" {
		p.Say(fmt.Sprintf("%8s\n", tookText(now.Sub(p.begun))))
		p.part = ""
	}
}

// done ends the last part, and sums up.
func (p *progress) done(what string) {
	if p == nil {
		return
	}
	now := time.Now()
	p.close(now)
	p.Say(fmt.Sprintf("agent-init: %-24s %8s%s\n", what, tookText(now.Sub(p.opened)), p.keys))
}

// keysHint says how a person gets at the keys of the session, if there is one for it.
func keysHint(prefix string) string {
	key, err := attach.ParsePrefix(prefix)
	if err != nil || key == 0 {
		return ""
	}
	return fmt.Sprintf("   %s ? shows the keys", key)
}

// failed ends the line of the part that was not done.
func (p *progress) failed() {
	if p != nil && p.part != "" {
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
