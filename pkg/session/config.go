package session

import (
	"log/slog"
	"os"
	"time"
)

// Config is what a Server is made of. Host must be complete.
type Config struct {
	Name       string // of the session
	AgentUID   uint32 // who may connect, besides root
	Scrollback int    // lines kept for each window; 0 means terminal's default
	Clipboard  bool   // programs may write the clipboard of those who may type (OSC 52)
	Host       Host
	Log        *slog.Logger // nil discards

	patience time.Duration // for tests; 0 means stuckAfter
}

// Host is what the server can't do itself. The functions are called from many
// goroutines and should not block for long.
type Host struct {
	// Open starts a command in a new window, as the programs of the session
	// are confined. The window comes by Add, or the failure by Refused, with
	// the same request number.
	Open func(request uint32, r Request) error
	// Kill ends the program of a window.
	Kill func(window uint32) error
	// Note reports what happened, for the audit log.
	Note func(Event)
	// Changed reports how many windows and attached clients there are.
	Changed func(windows, clients int)
	// Full reports that a window's record is larger than it should be. The next
	// one comes by Record.
	Full func(window uint32)
}

// EventKind says what an Event is about.
type EventKind uint8

// The kinds of event.
const (
	EventAttach EventKind = iota + 1
	EventDetach
	EventNew
	EventKill
	EventPutOut     // a client that took nothing for too long
	EventRecordLost // the record can't be written
)

// Event is something that a client did.
type Event struct {
	Kind     EventKind
	Window   uint32
	Peer     Peer
	ReadOnly bool
}

// WindowSpec describes a window that was started.
type WindowSpec struct {
	ID      uint32
	Request uint32 // of Host.Open that it answers; 0: none
	Name    string
	PID     int // 0 until Started says it
	Started time.Time
	Master  *os.File // the near side of its terminal; the server takes it over
	Again   bool     // an earlier server had it: the program has to draw its screen again
}
