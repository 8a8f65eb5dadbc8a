package budget

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"syscall"
	"time"
)

// scarce are failures that pass when something else is closed.
var scarce = []error{syscall.ECONNABORTED, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}

// Accept has serve take each connection that comes to l, until l fails, which is no error
// once ctx has ended. While descriptors or memory are short, the backlog waits.
func Accept(ctx context.Context, l net.Listener, log *slog.Logger, serve func(net.Conn)) error {
	const least, most = 5 * time.Millisecond, time.Second
	for pause := least; ; {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case err == nil:
			pause = least
			serve(conn)
		case !slices.ContainsFunc(scarce, func(e error) bool { return errors.Is(err, e) }):
			return err
		default:
			log.Warn("no connection can be accepted", "on", l.Addr(), "error", err)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, most)
		}
	}
}
