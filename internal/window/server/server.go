// Package server is the process that keeps the terminals of a session, and has no privilege.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/stage/child"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/session"
)

// Run reads what it is told, and serves until the session ends or the keeper goes.
func Run(ctx context.Context) error {
	var c stage.SessionConfig
	conn, err := child.Told(&c, fault.New(fault.Usage, "use agent-init run --session always", "the session server is started by agent-init itself"))
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: c.LogLevel}))
	channel := wire.Open(conn, sessionop.MaxText)
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	server := session.NewServer(session.Config{Top: []string{program, "top"}, Name: c.Name, AgentUID: c.AgentUID, Clipboard: c.Clipboard, RecordLimit: c.RecordLimit, Log: log,
		Tell: func(m wire.Message) error {
			if err := channel.Send(m, nil); err != nil {
				return fmt.Errorf("ask the keeper: %w", err)
			}
			return nil
		}})
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
	go func() { cancel(serve(ctx, channel, server, func() { cancel(server.Serve(ctx, unixListener)) })) }()
	if err := channel.Send(wire.Message{Op: wire.OpReady}, nil); err != nil {
		return fmt.Errorf("tell the keeper: %w", err)
	}
	return child.Serve(ctx)
}

// serve does what the keeper says, until either ends. Clients are served once all windows are there.
func serve(ctx context.Context, channel *wire.Channel, server *session.Server, clients func()) error {
	for {
		m, file, err := channel.Receive()
		switch {
		case errors.Is(err, wire.ErrMalformed):
		case err != nil:
			return fmt.Errorf("%w: %w", child.ErrKeeperGone, err)
		case m.Op == wire.OpReady:
			go clients()
		case m.Op == sessionop.End:
			ctx, cancel := context.WithTimeout(ctx, goodbyeTime)
			defer cancel()
			server.Shutdown(ctx)
			return child.ErrKeeperGone
		default:
			server.Take(m, file)
		}
	}
}

const goodbyeTime = 1500 * time.Millisecond // what clients get to take the end of the session
