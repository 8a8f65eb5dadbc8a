package control

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Peer is who connected, as the kernel knows it, in the ids of this process's
// namespaces.
type Peer struct {
	UID uint32
	GID uint32
	PID int // 0 if the peer is in another pid namespace
}

// Server serves a socket.
type Server struct {
	// May says whether a uid may speak at all. It is asked before anything is
	// read from the peer.
	May func(uid uint32) bool

	// Handle serves one request. It is called concurrently.
	Handle func(ctx context.Context, p Peer, r Request) Reply

	Log      *slog.Logger  // nil discards
	Peers    int           // how many may be connected at once, default 16; one more is turned away
	Patience time.Duration // for a peer to say what it wants, and to take the answer; default 5 s each
}

// Listen makes a socket at path, with mode, in place of one that an earlier
// process left there. The directory must be one that only the caller's user
// can write to.
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
	places := make(chan struct{}, cmp.Or(s.Peers, 16))
	var peers sync.WaitGroup
	defer peers.Wait()
	for {
		conn, err := l.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil: // out of descriptors, for one
			log.Warn("accepting on the control socket", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		select {
		case places <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		peers.Go(func() {
			defer func() { <-places }()
			defer conn.Close()
			s.serve(ctx, conn, log)
		})
	}
}

func (s *Server) serve(ctx context.Context, conn *net.UnixConn, log *slog.Logger) {
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
	reply, ok := s.answer(ctx, peer, conn)
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

// answer reads a request of peer's, who may make one, and serves it.
func (s *Server) answer(ctx context.Context, peer Peer, conn io.Reader) (r Reply, ok bool) {
	if !s.May(peer.UID) {
		return Reply{Code: 77, Error: fmt.Sprintf("uid %d may not ask for this", peer.UID), Remedy: "run it as root"}, true
	}
	// One byte more than a request tells one that is too long.
	line, err := bufio.NewReaderSize(io.LimitReader(conn, maxRequest+1), maxRequest+1).ReadSlice('\n')
	if err != nil && len(line) == 0 {
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
	return Peer{UID: cred.Uid, GID: cred.Gid, PID: int(cred.Pid)}, nil
}
