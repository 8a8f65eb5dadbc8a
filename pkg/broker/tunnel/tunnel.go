// Package tunnel asks an HTTP proxy for a connection to somewhere else (RFC 9110, section 9.3.6), and reads what it says.
// The proxy may be anybody's by now: its answer is read up to a bound, in the strictest form, and nothing of it is
// repeated but the status.
package tunnel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// MaxHead bounds the head of the proxy's answer.
const MaxHead = 8 << 10

// Refusal is the status by which the proxy refused.
type Refusal int

func (r Refusal) Error() string {
	switch r {
	case 407:
		return "the proxy does not take what it was shown as a credential (407)"
	case 502, 503, 504:
		return fmt.Sprintf("the proxy did not reach it (%d)", int(r))
	}
	return fmt.Sprintf("the proxy refused (%d)", int(r))
}

// What the proxy may have said instead of an answer.
var (
	ErrLong    = errors.New("the head of the proxy's answer is too long")
	ErrGarbage = errors.New("the proxy's answer is not one of HTTP/1")
	ErrBehind  = errors.New("the proxy sent something behind its answer, before it was told anything")
	ErrEnded   = errors.New("the proxy closed the connection instead of an answer")
	ErrLate    = errors.New("the proxy did not answer in time")
)

// Open asks the proxy that conn leads to for target, HOST:PORT, and shows authorization, if that is not "". Without an
// error, what is written to conn goes to the target from then on. Its end is up to the caller in any case.
func Open(ctx context.Context, conn net.Conn, target, authorization string) error {
	defer conn.SetDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	ask := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\nUser-Agent: agent-init\r\n"
	if authorization != "" {
		ask += "Proxy-Authorization: " + authorization + "\r\n"
	}
	_, err := io.WriteString(conn, ask+"\r\n")
	if err == nil {
		err = answer(conn)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrLate
	case err == nil && !stop(): // the deadline may have come between
		return ErrLate
	}
	return err
}

// answer reads until the head has ended, and says whether the target was reached.
func answer(conn io.Reader) error {
	head := make([]byte, 0, MaxHead)
	for {
		n, err := conn.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		if end, status, bad := parse(head); bad != nil {
			return bad
		} else if end > 0 {
			switch {
			case status < 200 || status > 299:
				return Refusal(status)
			case end < len(head):
				return ErrBehind
			}
			return nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return ErrEnded
		case err != nil:
			return err
		case len(head) == cap(head):
			return ErrLong
		}
	}
}

// parse returns where the head ends, and its status; 0 if it has not ended yet. What can't become a head is an error at
// once. Lines end in CR LF, and have no other control character but a tab.
func parse(b []byte) (end, status int, err error) {
	const first = "HTTP/1."
	if n := min(len(b), len(first)); string(b[:n]) != first[:n] {
		return 0, 0, ErrGarbage
	}
	for at := 0; ; {
		n := bytes.IndexByte(b[at:], '\n')
		if n < 0 {
			return 0, 0, clean(b[at:])
		}
		line, ended := bytes.CutSuffix(b[at:at+n], []byte("\r"))
		switch {
		case !ended || bytes.ContainsFunc(line, control):
			return 0, 0, ErrGarbage
		case at == 0:
			if status = statusOf(line); status == 0 {
				return 0, 0, ErrGarbage
			}
		case len(line) == 0:
			return at + n + 1, status, nil
		case bytes.IndexByte(line, ':') <= 0:
			return 0, 0, ErrGarbage
		}
		at += n + 1
	}
}

// clean is about a line that has not ended yet.
func clean(line []byte) error {
	if bytes.ContainsFunc(bytes.TrimSuffix(line, []byte("\r")), control) {
		return ErrGarbage
	}
	return nil
}

func control(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// statusOf is that of HTTP/1.D NNN REASON (RFC 9112, section 4), 0 if it is none.
func statusOf(line []byte) (status int) {
	const digits, least = len("HTTP/1.1 "), len("HTTP/1.1 200")
	if len(line) < least || line[7] != '0' && line[7] != '1' || line[8] != ' ' || len(line) > least && line[least] != ' ' {
		return 0
	}
	for _, c := range line[digits:least] {
		if c < '0' || c > '9' {
			return 0
		}
		status = 10*status + int(c-'0')
	}
	if status < 100 || status > 599 {
		return 0
	}
	return status
}
