// Package server is the process that keeps the terminals of a session, and has no privilege.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/session"
)

// sessionServer is the server as the keeper's child.
type sessionServer struct {
	channel *wire.SessionChannel
	server  *session.Server
	log     *slog.Logger

	recordLimit int64
}

// Run reads what it is told, and serves until the session ends or the keeper goes.
func Run(ctx context.Context) error {
	var c stage.SessionConfig
	conn, err := stage.Told(&c, fault.New(fault.Usage, "use agent-init run --session always", "the session server is started by agent-init itself"))
	if err != nil {
		return err
	}
	debug.SetGCPercent(stage.SmallHeap)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: c.LogLevel}))
	s := &sessionServer{channel: wire.OpenSession(conn), log: log, recordLimit: c.RecordLimit}
	s.server = session.NewServer(session.Config{Name: c.Name, AgentUID: c.AgentUID, Clipboard: c.Clipboard, Log: log, Host: s.host()})
	listener, err := wire.Inherit(stage.FDFiles+1, net.FileListener)
	if err != nil {
		return err
	}
	unixListener, ok := listener.(*net.UnixListener)
	if !ok {
		return errors.New("the session's socket is of another kind")
	}
	unixListener.SetUnlinkOnClose(false) // the next server listens on it
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(s.serveChannel(ctx, func() { cancel(s.server.Serve(ctx, unixListener)) })) }()
	if err := s.channel.Send(wire.SessionMessage{Op: wire.SopReady}, nil); err != nil {
		return fmt.Errorf("tell the keeper: %w", err)
	}
	stage.SpawnThreads()
	stage.Settle()
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, stage.ErrKeeperGone) {
		return err
	}
	return nil
}

// host is what the server asks the keeper for.
func (s *sessionServer) host() session.Host {
	send := func(m wire.SessionMessage) error {
		if err := s.channel.Send(m, nil); err != nil {
			return fmt.Errorf("ask the keeper: %w", err)
		}
		return nil
	}
	tell := func(m wire.SessionMessage) {
		if err := send(m); err != nil {
			s.log.Debug("telling the keeper", "error", err)
		}
	}
	return session.Host{
		Open: func(request uint32, r session.Request) error {
			return send(wire.SessionMessage{Op: wire.SopOpen, Arg: uint64(request), Cols: uint16(r.Cols), Rows: uint16(r.Rows), Text: wire.JoinCommand(r.Name, r.Argv)})
		},
		Kill: func(id uint32) error { return send(wire.SessionMessage{Op: wire.SopKill, ID: id}) },
		Note: func(e session.Event) {
			m := wire.SessionMessage{Op: wire.SopEvent, Flag: uint8(e.Kind), ID: e.Window, UID: e.Peer.UID, PID: uint32(e.Peer.PID)}
			if e.ReadOnly {
				m.Arg = 1
			}
			tell(m)
		},
		Changed: func(windows, clients int) {
			tell(wire.SessionMessage{Op: wire.SopPong, Arg: uint64(windows), Value: int64(clients)})
		},
		Full: func(window uint32) { tell(wire.SessionMessage{Op: wire.SopFull, ID: window}) },
	}
}

// serveChannel handles what the keeper sends, until the keeper goes or the
// session ends. Clients are served once all windows are there: one that comes
// back looks for its own.
func (s *sessionServer) serveChannel(ctx context.Context, serve func()) error {
	for {
		m, file, err := s.channel.Receive()
		if errors.Is(err, wire.ErrMalformed) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %w", stage.ErrKeeperGone, err)
		}
		if m.Op == wire.SopReady {
			go serve()
			continue
		}
		if done := s.take(ctx, m, file); done {
			return stage.ErrKeeperGone
		}
	}
}

// take handles one message. It takes over file.
func (s *sessionServer) take(ctx context.Context, m wire.SessionMessage, file *os.File) (done bool) {
	used := false
	switch m.Op {
	case wire.SopWindow:
		if used = file != nil; used {
			err := s.server.Add(session.WindowSpec{ID: m.ID, Request: uint32(m.Arg), Name: m.Text, PID: int(m.PID),
				Started: time.Unix(0, m.Value), Master: file, Again: m.Flag != 0})
			if err != nil {
				s.log.Error("showing a window", "error", err)
			}
		}
	case wire.SopStarted:
		s.server.Started(m.ID, int(m.PID))
	case wire.SopExited:
		s.server.Exited(m.ID, int(m.Value))
	case wire.SopRefused:
		s.server.Refused(uint32(m.Arg), m.Text)
	case wire.SopClient:
		if file == nil {
			break
		}
		c, err := net.FileConn(file)
		if err != nil {
			break
		}
		if conn, ok := c.(*net.UnixConn); ok {
			go s.server.ServeConn(conn, session.Peer{Local: true})
		} else {
			c.Close()
		}
	case wire.SopRecord:
		if used = file != nil; used {
			s.server.Record(session.RecordSpec{Window: m.ID, File: file, Begun: time.Unix(0, m.Value), Size: int64(m.Arg), Limit: s.recordLimit})
		}
	case wire.SopPing:
		s.host().Changed(s.server.Count())
	case wire.SopEnd:
		ctx, cancel := context.WithTimeout(ctx, goodbyeTime)
		defer cancel()
		s.server.Shutdown(ctx)
		done = true
	}
	if file != nil && !used {
		file.Close()
	}
	return done
}

// goodbyeTime is what clients get to take the end of the session.
const goodbyeTime = 1500 * time.Millisecond
