// Package control carries commands to a process that owns something, over a unix socket: a line of JSON each way.
//
// Who is on the other end is known before anything is read from it: the kernel says with which uid the peer connected
// (SO_PEERCRED, unix(7)), and a peer that may not speak gets a refusal and nothing else. A request has a bounded size
// and a fixed set of fields, each with bounds of its own, and what a request means is the handler's business. The peer
// has a deadline, and connections have a limit, at which a new one takes the place of one that has asked for nothing: a
// peer that stalls holds up nobody but itself.
package control

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// The bounds of messages, in bytes.
const (
	maxRequest = 4096 // a whole request, with its newline
	maxTarget  = 320  // a target: a name of 253, a port, a protocol and flags
	maxReason  = 200  // a reason, in words
	maxReply   = 4 << 20
)

// maxSeconds is the longest time that a request can ask for: a century.
const maxSeconds = 100 * 365 * 24 * 60 * 60

// Start stands for a time that has no end but that of the process that is asked.
const Start = -1

// Request is what a peer asks for. Every field but Verb may be left out.
type Request struct {
	Version int    `json:"version"` // 1
	Verb    string `json:"verb"`    // up to 16 letters a to z
	Target  string `json:"target,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Seconds int64  `json:"seconds,omitempty"` // how long; 0: not said; Start: until who is asked ends
	Save    bool   `json:"save,omitempty"`    // for good: also for those who are asked later
	Number  uint32 `json:"number,omitempty"`  // of a grant or request; 0: none
}

// Reply is the answer. If it is not OK, Error is one line of cause, and Remedy one of what to do.
type Reply struct {
	OK     bool            `json:"ok"`
	Code   int             `json:"code,omitempty"` // exit code that goes with an error
	Error  string          `json:"error,omitempty"`
	Remedy string          `json:"remedy,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"` // what the verb answers
}

// parseRequest reads one request, strictly: one object, known fields only, all
// of them within their bounds, and nothing behind it but blanks.
func parseRequest(line []byte) (Request, error) {
	if len(line) > maxRequest {
		return Request{}, fmt.Errorf("a request of %d bytes is longer than %d", len(line), maxRequest)
	}
	if line = bytes.TrimSpace(line); len(line) == 0 || line[0] != '{' {
		return Request{}, errors.New("a request is one JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	var r Request
	if err := d.Decode(&r); err != nil {
		return Request{}, fmt.Errorf("decode the request: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Request{}, errors.New("the request is followed by more data")
	}
	if err := r.Check(); err != nil {
		return Request{}, err
	}
	return r, nil
}

// Check says what is out of bounds in r.
func (r Request) Check() error {
	switch {
	case r.Version != 1:
		return fmt.Errorf("version %d of the protocol is not spoken here, 1 is", r.Version)
	case !isVerb(r.Verb):
		return errors.New("not a verb")
	case len(r.Target) > maxTarget || !printable(r.Target):
		return fmt.Errorf("a target is up to %d printable characters", maxTarget)
	case len(r.Reason) > maxReason || !printable(r.Reason):
		return fmt.Errorf("a reason is up to %d printable characters", maxReason)
	case r.Seconds < Start || r.Seconds > maxSeconds:
		return errors.New("the time is out of range")
	case r.Save && r.Seconds != 0:
		return errors.New("what is saved has no end")
	}
	return nil
}

func isVerb(s string) bool {
	return s != "" && len(s) <= 16 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == ""
}

// printable says whether s is nothing that a terminal or a log could take for more than text.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// ErrBounds says that a request can't be sent, since a field is out of bounds.
var ErrBounds = errors.New("out of bounds")

// Call sends r to the socket at path and returns the reply, which a refusal is too. The error
// matches ErrBounds, or is about the connection, such as fs.ErrNotExist.
func Call(ctx context.Context, path string, r Request) (Reply, error) {
	r.Version = 1
	if err := r.Check(); err != nil {
		return Reply{}, fmt.Errorf("%w: %w", ErrBounds, err)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return Reply{}, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return Reply{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	// A server that refuses does not read; its answer is there all the same.
	_, written := conn.Write(append(line, '\n'))
	answer, err := bufio.NewReader(io.LimitReader(conn, maxReply)).ReadBytes('\n')
	switch {
	case ctx.Err() != nil:
		return Reply{}, fmt.Errorf("ask at %s: %w", path, ctx.Err())
	case err != nil:
		err = cmp.Or(written, err)
		var op *net.OpError
		if errors.As(err, &op) { // each operation's error has the path again
			err = op.Err
		}
		return Reply{}, fmt.Errorf("ask at %s: no answer: %w", path, err)
	}
	var reply Reply
	if err := json.Unmarshal(answer, &reply); err != nil {
		return Reply{}, fmt.Errorf("ask at %s: %w", path, err)
	}
	return reply, nil
}

// Peer is who connected, as the kernel knows it, in the ids of our namespaces.
type Peer struct {
	UID uint32
	PID int // 0 if the peer is in another pid namespace

	Terminal bool // it speaks for who sits at the container's own terminal, whatever its uid
}

// Server serves a socket.
type Server struct {
	May      func(uid uint32) bool                              // speak at all; asked before anything is read from the peer
	Handle   func(ctx context.Context, p Peer, r Request) Reply // called concurrently
	Log      *slog.Logger                                       // nil discards
	Peers    int                                                // how many may be connected at once, default 16; see peers
	Patience time.Duration                                      // for a peer to say what it wants, and to take the answer; default 5 s each
}

// Listen makes a socket at path, in place of one that an earlier process left there. Only the
// caller's user may be able to write to the directory.
func Listen(path string, mode os.FileMode) (*net.UnixListener, error) {
	temp := path + ".new" // nobody can connect by its name before the mode is right
	var l *net.UnixListener
	err := os.Remove(temp)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	}
	if err == nil {
		l.SetUnlinkOnClose(false) // a later process's may be in its place
		if err = os.Chmod(temp, mode); err == nil {
			err = os.Rename(temp, path)
		}
		if err == nil {
			return l, nil
		}
		l.Close()
	}
	return nil, fmt.Errorf("make the socket %s: %w", path, err)
}

// Serve answers peers until ctx ends or l is closed. It closes l, and returns when
// the requests that were read by then have their answers.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	log := cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	all := &peers{most: cmp.Or(s.Peers, 16), asked: map[*net.UnixConn]bool{}}
	var work sync.WaitGroup
	defer work.Wait()
	for {
		conn, err := l.AcceptUnix()
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			if err == nil {
				conn.Close()
			}
			return nil
		}
		if err != nil { // out of descriptors, for one
			log.Warn("accepting on the control socket", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if !all.add(conn) {
			conn.Close()
			continue
		}
		work.Go(func() {
			defer all.remove(conn)
			s.serve(ctx, conn, all, log)
		})
	}
}

// peers are those that are connected. One more takes the place of whoever has said nothing for longest, and is turned away
// if all have asked for something.
type peers struct {
	most int

	mu    sync.Mutex
	all   []*net.UnixConn
	asked map[*net.UnixConn]bool
}

func (p *peers) add(conn *net.UnixConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) >= p.most {
		i := slices.IndexFunc(p.all, func(c *net.UnixConn) bool { return !p.asked[c] })
		if i < 0 {
			return false
		}
		p.all[i].Close()
		p.all = slices.Delete(p.all, i, i+1)
	}
	p.all = append(p.all, conn)
	return true
}

// asks notes that conn keeps its place, and returns false if another has that already.
func (p *peers) asks(conn *net.UnixConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.all, conn) {
		return false
	}
	p.asked[conn] = true
	return true
}

func (p *peers) remove(conn *net.UnixConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	conn.Close()
	p.all = slices.DeleteFunc(p.all, func(c *net.UnixConn) bool { return c == conn })
	delete(p.asked, conn)
}

func (s *Server) serve(ctx context.Context, conn *net.UnixConn, all *peers, log *slog.Logger) {
	patience := cmp.Or(s.Patience, 5*time.Second)
	peer, err := PeerOf(conn)
	if err != nil {
		log.Warn("who is on the control socket can't be told", "error", err)
		return
	}
	if conn.SetDeadline(time.Now().Add(patience)) != nil {
		return
	}
	// Who has said nothing by the end is not waited for.
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	reply, ok := s.answer(ctx, peer, conn, func() bool { return all.asks(conn) })
	if !ok {
		return // it left without a word
	}
	data, err := json.Marshal(reply)
	if err != nil || len(data) >= maxReply {
		data = []byte(`{"ok":false,"code":1,"error":"the answer is too long, or none","remedy":"run agent-init status, and report this as a bug"}`)
	}
	if conn.SetDeadline(time.Now().Add(patience)) == nil {
		_, _ = conn.Write(append(data, '\n')) // a peer that has left does not want it
	}
}

// answer reads a request of peer's, who may make one, and serves it if asks returns true.
func (s *Server) answer(ctx context.Context, peer Peer, conn io.Reader, asks func() bool) (r Reply, ok bool) {
	if !s.May(peer.UID) {
		return Reply{Code: 77, Error: fmt.Sprintf("uid %d may not ask for this", peer.UID), Remedy: "run it as root"}, true
	}
	// One byte more than a request tells one that is too long.
	line, err := bufio.NewReaderSize(io.LimitReader(conn, maxRequest+1), maxRequest+1).ReadSlice('\n')
	if err != nil && len(line) == 0 || !asks() {
		return r, false
	}
	request, err := parseRequest(line)
	if err != nil {
		return Reply{Code: 64, Error: err.Error(), Remedy: "use the agent-init command of the same version"}, true
	}
	return s.Handle(ctx, peer, request), true
}

// PeerOf returns the credentials that the peer had when it connected.
func PeerOf(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) { cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = cmp.Or(err, asked); err != nil {
		return Peer{}, err
	}
	return Peer{UID: cred.Uid, PID: int(cred.Pid)}, nil
}
