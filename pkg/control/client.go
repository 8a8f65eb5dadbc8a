package control

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
)

// ErrBounds says that a request can't be sent, since a field is out of bounds.
var ErrBounds = errors.New("out of bounds")

// Call sends r to the socket at path and returns the reply. The error matches
// ErrBounds, or is about the connection, such as fs.ErrNotExist and
// fs.ErrPermission; a refusal is a Reply.
func Call(ctx context.Context, path string, r Request) (Reply, error) {
	r.Version = 1
	if err := r.check(); err != nil {
		return Reply{}, fmt.Errorf("%w: %w", ErrBounds, err)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return Reply{}, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return Reply{}, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	// A server that refuses does not read; its answer is there all the same.
	_, written := conn.Write(append(line, '\n'))
	answer, err := bufio.NewReader(io.LimitReader(conn, maxReply)).ReadBytes('\n')
	switch {
	case ctx.Err() != nil:
		return Reply{}, fmt.Errorf("ask at %s: %w", path, ctx.Err())
	case err != nil:
		return Reply{}, fmt.Errorf("ask at %s: no answer: %w", path, withoutAddress(cmp.Or(written, err)))
	}
	var reply Reply
	if err := json.Unmarshal(answer, &reply); err != nil {
		return Reply{}, fmt.Errorf("ask at %s: %w", path, err)
	}
	return reply, nil
}

// withoutAddress is err without the socket's path, which an error of a connection's
// repeats in each operation.
func withoutAddress(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
