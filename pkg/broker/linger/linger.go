// Package linger closes a connection so that its client learns why it was refused.
package linger

import (
	"context"
	"io"
	"net"
	"time"
)

// Time is how long a client that sends on has for the answer.
const Time = 5 * time.Second

// Over says that c has its answer, and reads what its client still sends, until the client closes, Time is over, or ctx
// ends. Were c closed over unread bytes, the kernel would reset it, and the client might lose the answer (RFC 9112,
// section 9.6). The caller closes c.
func Over(ctx context.Context, c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok || t.CloseWrite() != nil || t.SetReadDeadline(time.Now().Add(Time)) != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { t.SetReadDeadline(time.Unix(1, 0)) })()
	_, _ = io.Copy(io.Discard, t)
}
