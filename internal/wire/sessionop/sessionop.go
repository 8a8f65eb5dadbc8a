// Package sessionop is what session server and keeper say. The keeper looks for nothing but zero bytes in its texts.
package sessionop

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/agent-init/agent-init/internal/wire"
)

// What a message is about, beside those that every child has.
const (
	Window  = wire.OpSession + iota // keeper: a window, its terminal beside the message. id, pid, value: when it was started, arg: request, flag: an earlier server had it; text: name
	Exited                          // keeper: the program of window id has ended with value
	Open                            // server: start a command. arg: request, cols, rows; text: name, then the arguments
	Refused                         // keeper: request arg can't be done; text: why
	Kill                            // server: end window id
	Client                          // keeper: a client of the container's own terminal, its socket beside the message
	Record                          // keeper: the file to record window id to, beside the message. value: when it was begun, arg: bytes in it
	Full                            // server: that of window id is full
	Noted                           // server: something for the audit log. flag: an Event, id: window, uid, pid, arg: read-only
	End                             // keeper: the session has ended: say goodbye, and end
	Started                         // keeper: the program of window id runs, as pid
	Notice                          // keeper: clients are to show text, and ring for it; without text: no longer
	Answer                          // client of the container's own terminal: what the person says to request id of the agent's. flag: a Verdict; text: the request's target. keeper: what came of it, as JSON of a control.Reply
)

// Event is what a client did, or what became of a record.
type Event uint8

const (
	Attached Event = iota + 1
	Detached
	Opened
	KillAsked
	PutOut     // a client that took nothing for too long
	RecordLost // the record can't be written
)

// Verdict is what a person says to a request of the agent's.
type Verdict uint8

// The verdicts.
const (
	ForMinutes Verdict = iota + 1 // allowed for a while
	ForStart                      // allowed until agent-init ends
	ForGood                       // allowed, and saved
	TurnedDown
)

// MaxText bounds the text of a message.
const MaxText = 20 << 10

// JoinCommand turns a window's name and command into text: each ends with a zero byte, which none of them can hold.
func JoinCommand(name string, argv []string) string {
	return strings.Join(append([]string{name}, argv...), "\x00") + "\x00"
}

// SplitCommand takes apart what JoinCommand has made.
func SplitCommand(text string) (name string, argv []string, err error) {
	rest, ok := strings.CutSuffix(text, "\x00")
	if !ok {
		return "", nil, errors.New("not a command")
	}
	parts := strings.Split(rest, "\x00")
	if len(parts) > 1 && parts[1] == "" {
		return "", nil, errors.New("a command without a name")
	}
	return parts[0], parts[1:], nil
}

const maxName = 64

// CheckName says why a name of a session or a window is none: they are shown on terminals and typed into command lines.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("an empty name")
	case len(name) > maxName:
		return fmt.Errorf("a name has at most %d bytes", maxName)
	}
	for i, c := range name {
		if c > unicode.MaxASCII || !(c == '-' && i > 0 || c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
			return fmt.Errorf("a name has letters, digits, dots, underscores and hyphens only, not %q", c)
		}
	}
	return nil
}
