package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"unicode"
)

// The session server asks and the keeper answers in bounded messages over a
// SOCK_SEQPACKET pair: a head of fixed size, and at most maxSessionText of text whose
// length the packet's must agree with. The keeper looks into the text for
// nothing but zero bytes.

// SessionOp is what a message is about.
type SessionOp uint8

const (
	SopReady   SessionOp = iota + 1 // server: there; keeper: that is all there is, serve
	SopPing                         // keeper: still there?
	SopPong                         // server: yes; value: windows and clients
	SopWindow                       // keeper: a window, its terminal beside the message. id, pid, value: when it was started, arg: request; text: name
	SopExited                       // keeper: the program of window id has ended with value
	SopOpen                         // server: start a command. arg: request, cols, rows; text: name, then the arguments
	SopRefused                      // keeper: request arg can't be done; text: why
	SopKill                         // server: end window id
	SopClient                       // keeper: a client of the container's own terminal, its socket beside the message
	SopRecord                       // keeper: the file to record window id to, beside the message. value: when it was begun, arg: bytes in it
	SopFull                         // server: that of window id is full
	SopEvent                        // server: something for the audit log. flag: a SessionEvent, id: window, uid, pid, arg: read-only
	SopEnd                          // keeper: the session has ended: say goodbye, and end
	SopStarted                      // keeper: the program of window id runs, as pid
)

// SessionMessage is the one shape of every request and reply.
type SessionMessage struct {
	Op         SessionOp
	Flag       uint8
	Cols, Rows uint16
	ID         uint32
	UID, PID   uint32
	Arg        uint64
	Value      int64
	Text       string
}

// sessionHead is the head in memory order.
type sessionHead struct {
	Op         uint8
	Flag       uint8
	Cols, Rows uint16
	Length     uint16 // of the text that follows
	ID         uint32
	UID, PID   uint32
	Arg        uint64
	Value      int64
}

const maxSessionText = 20 << 10

var sessionHeadSize = binary.Size(sessionHead{})

func (m SessionMessage) encode() ([]byte, error) {
	if len(m.Text) > maxSessionText {
		return nil, errors.New("message too long")
	}
	b, err := binary.Append(make([]byte, 0, sessionHeadSize+len(m.Text)), binary.BigEndian, sessionHead{
		Op: uint8(m.Op), Flag: m.Flag, Cols: m.Cols, Rows: m.Rows, Length: uint16(len(m.Text)),
		ID: m.ID, UID: m.UID, PID: m.PID, Arg: m.Arg, Value: m.Value,
	})
	return append(b, m.Text...), err
}

func decodeSessionMessage(b []byte) (SessionMessage, error) {
	var h sessionHead
	if len(b) < sessionHeadSize {
		return SessionMessage{}, fmt.Errorf("message of %d bytes, want %d at least", len(b), sessionHeadSize)
	}
	if _, err := binary.Decode(b, binary.BigEndian, &h); err != nil {
		return SessionMessage{}, err
	}
	text := b[sessionHeadSize:]
	if int(h.Length) != len(text) || len(text) > maxSessionText || h.Op == 0 || h.Op > uint8(SopStarted) {
		return SessionMessage{}, errors.New("message field out of range")
	}
	return SessionMessage{Op: SessionOp(h.Op), Flag: h.Flag, Cols: h.Cols, Rows: h.Rows, ID: h.ID, UID: h.UID, PID: h.PID,
		Arg: h.Arg, Value: h.Value, Text: string(text)}, nil
}

// JoinCommand and splitCommand turn a window's name and command into text:
// each ends with a zero byte, which none of them can hold.
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

// CheckName says why a name of a session or a window is none: they are shown
// on terminals and typed into command lines.
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

// SessionEvent is what a client did, or what became of a record.
type SessionEvent uint8

const (
	Attached SessionEvent = iota + 1
	Detached
	Opened
	KillAsked
	PutOut     // a client that took nothing for too long
	RecordLost // the record can't be written
)

// SessionChannel is one end of the pair.
type SessionChannel = Channel[SessionMessage]

// OpenSession speaks with the session server, or as it with the keeper, over conn.
func OpenSession(conn *net.UnixConn) *SessionChannel {
	return Over(conn, sessionHeadSize+maxSessionText, decodeSessionMessage)
}
