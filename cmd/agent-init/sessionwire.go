package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
)

// The session server asks and the keeper answers in bounded messages over a
// SOCK_SEQPACKET pair: a head of fixed size, and at most maxSessionText of text whose
// length the packet's must agree with. The keeper looks into the text for
// nothing but zero bytes.

type sessionOp uint8

const (
	sopReady   sessionOp = iota + 1 // server: there; keeper: that is all there is, serve
	sopPing                         // keeper: still there?
	sopPong                         // server: yes; value: windows and clients
	sopWindow                       // keeper: a window, its terminal beside the message. id, pid, value: when it was started, arg: request; text: name
	sopExited                       // keeper: the program of window id has ended with value
	sopOpen                         // server: start a command. arg: request, cols, rows; text: name, then the arguments
	sopRefused                      // keeper: request arg can't be done; text: why
	sopKill                         // server: end window id
	sopClient                       // keeper: a client of the container's own terminal, its socket beside the message
	sopRecord                       // keeper: the file to record window id to, beside the message. value: when it was begun, arg: bytes in it
	sopFull                         // server: that of window id is full
	sopEvent                        // server: something for the audit log. flag: what, id: window, uid, pid, arg: read-only
	sopEnd                          // keeper: the session has ended: say goodbye, and end
	sopStarted                      // keeper: the program of window id runs, as pid
)

// sessionMessage is the one shape of every request and reply.
type sessionMessage struct {
	op         sessionOp
	flag       uint8
	cols, rows uint16
	id         uint32
	uid, pid   uint32
	arg        uint64
	value      int64
	text       string
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

func (m sessionMessage) encode() ([]byte, error) {
	if len(m.text) > maxSessionText {
		return nil, errors.New("message too long")
	}
	b, err := binary.Append(make([]byte, 0, sessionHeadSize+len(m.text)), binary.BigEndian, sessionHead{
		Op: uint8(m.op), Flag: m.flag, Cols: m.cols, Rows: m.rows, Length: uint16(len(m.text)),
		ID: m.id, UID: m.uid, PID: m.pid, Arg: m.arg, Value: m.value,
	})
	return append(b, m.text...), err
}

func decodeSessionMessage(b []byte) (sessionMessage, error) {
	var h sessionHead
	if len(b) < sessionHeadSize {
		return sessionMessage{}, fmt.Errorf("message of %d bytes, want %d at least", len(b), sessionHeadSize)
	}
	if _, err := binary.Decode(b, binary.BigEndian, &h); err != nil {
		return sessionMessage{}, err
	}
	text := b[sessionHeadSize:]
	if int(h.Length) != len(text) || len(text) > maxSessionText || h.Op == 0 || h.Op > uint8(sopStarted) {
		return sessionMessage{}, errors.New("message field out of range")
	}
	return sessionMessage{op: sessionOp(h.Op), flag: h.Flag, cols: h.Cols, rows: h.Rows, id: h.ID, uid: h.UID, pid: h.PID,
		arg: h.Arg, value: h.Value, text: string(text)}, nil
}

// joinCommand and splitCommand turn a window's name and command into text:
// each ends with a zero byte, which none of them can hold.
func joinCommand(name string, argv []string) string {
	return strings.Join(append([]string{name}, argv...), "\x00") + "\x00"
}

func splitCommand(text string) (name string, argv []string, err error) {
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

// sessionChannel is one end of the pair.
type sessionChannel = seqpacket[sessionMessage]

func openSessionChannel(conn *net.UnixConn) *sessionChannel {
	return over(conn, sessionHeadSize+maxSessionText, decodeSessionMessage)
}
