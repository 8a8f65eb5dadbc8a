// Package protocol is what a client asks of a session's server, and what it is answered.
package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
)

// The verbs of requests.
const (
	VerbAttach  = "attach"  // show a window
	VerbList    = "list"    // answer with the JSON of an Info
	VerbNew     = "new"     // start a command in a window; answer with the JSON of its WindowInfo
	VerbHistory = "history" // answer with what has scrolled away, and the screen
	VerbKill    = "kill"    // end a window
)

// Request opens a connection.
type Request struct {
	Version int      `json:"version"` // Encode fills it in
	Verb    string   `json:"verb"`
	Window  string   `json:"window,omitempty"` // number or name; empty: the first, for Attach the first that is left
	Cols    int      `json:"cols,omitempty"`   // of the client's terminal
	Rows    int      `json:"rows,omitempty"`
	Read    bool     `json:"read_only,omitempty"`
	Nested  bool     `json:"nested,omitempty"` // attach also from inside of a window
	Plain   bool     `json:"plain,omitempty"`  // text only: the terminal knows no escape sequences
	TTY     TTY      `json:"tty"`              // the client's terminal
	Key     string   `json:"key,omitempty"`    // Attach: what is pressed to see what waits for a person
	Name    string   `json:"name,omitempty"`   // New: of the window
	Argv    []string `json:"argv,omitempty"`   // New: the command; empty: a shell
	Styles  bool     `json:"styles,omitempty"` // History: with colours
}

// TTY tells terminals apart: the file system and the device number of one. The zero TTY is none.
type TTY struct {
	Dev  uint64 `json:"dev"`
	Rdev uint64 `json:"rdev"`
}

// Info describes a session.
type Info struct {
	Name    string       `json:"name"`
	Windows []WindowInfo `json:"windows"`
}

// WindowInfo describes a window.
type WindowInfo struct {
	ID      uint32       `json:"id"`
	Name    string       `json:"name"`
	Title   string       `json:"title,omitempty"` // as the program set it, without control characters
	Cwd     string       `json:"cwd,omitempty"`   // as the shell reported it (OSC 7)
	PID     int          `json:"pid"`
	Cols    int          `json:"cols"`
	Rows    int          `json:"rows"`
	Started time.Time    `json:"started,omitzero"`
	Clients []ClientInfo `json:"clients"`
}

// ClientInfo describes an attached client.
type ClientInfo struct {
	UID      uint32    `json:"uid"`
	PID      int       `json:"pid"` // 0 for the client on the container's own terminal
	Attached time.Time `json:"attached,omitzero"`
	Typed    time.Time `json:"typed,omitzero"` // when input last came; zero if none did
	Read     bool      `json:"read_only,omitempty"`
	Leader   bool      `json:"leader,omitempty"`
	Cols     int       `json:"cols"`
	Rows     int       `json:"rows"`
}

const (
	version = 1
	maxArgv = 16 << 10 // bytes of a command line
	maxKey  = 16
)

// MaxSide is more columns or rows than any terminal has.
const MaxSide = 4096

// Encode is the payload that opens a connection.
func (r Request) Encode() []byte {
	r.Version = version
	b, _ := json.Marshal(r) // of our own types: nothing in it can fail
	return b
}

// DecodeRequest reads a Hello strictly: what it does not know, it refuses.
func DecodeRequest(b []byte) (Request, error) {
	var r Request
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Request{}, fmt.Errorf("not a request: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Request{}, errors.New("not a request: more than one value")
	}
	if r.Version != version {
		return r, fmt.Errorf("protocol version %d, not %d: use the agent-init of this container", r.Version, version)
	}
	switch r.Verb {
	case VerbAttach, VerbList, VerbNew, VerbHistory, VerbKill:
	default:
		return r, errors.New("unknown request")
	}
	if r.Cols < 0 || r.Rows < 0 || r.Cols > MaxSide || r.Rows > MaxSide {
		return r, errors.New("no terminal has that size")
	}
	if err := sessionop.CheckName(r.Name); r.Name != "" && err != nil {
		return r, err
	}
	if len(r.Key) > maxKey || text.Clean(r.Key) != r.Key {
		return r, errors.New("no key is called that")
	}
	command := strings.Join(r.Argv, " ")
	switch {
	case strings.Contains(command, "\x00"):
		return r, errors.New("a zero byte in the command")
	case len(command) >= maxArgv:
		return r, fmt.Errorf("the command has more than %d bytes", maxArgv)
	}
	return r, nil
}

// TTYOf identifies the terminal behind a descriptor, if it is one.
func TTYOf(fd int) TTY {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return TTY{}
	}
	return TTY{Dev: uint64(st.Dev), Rdev: uint64(st.Rdev)}
}
