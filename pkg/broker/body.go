package broker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/broker/room"
	"github.com/agent-init/agent-init/pkg/route"
)

const (
	// maxHeld are the bytes that all requests hold: their heads, bodies that are read whole, and what is read ahead.
	maxHeld = 2 * route.MaxBody

	// maxKept is a body that is held until the answer begins, so that it can be sent again if the server never looked
	// at it (it went away, RFC 9113, section 6.8). A larger one goes as soon as it is sent.
	maxKept = 64 << 10

	// maxTrees are the bodies that are judged at once. One of small values takes 40 MiB until that is over.
	maxTrees = 2
)

var (
	errTooLarge  = errors.New("the body is larger than 32 MiB")
	errBusy      = errors.New("too many requests are judged at once")
	errSlow      = errors.New("the body did not come in time")
	errIncoming  = errors.New("the body did not come whole")
	errForgotten = errors.New("the body was sent already")
)

// bodies bounds what all requests hold.
type bodies struct {
	room  *room.Room
	trees *semaphore.Weighted // first come, first served
	wait  time.Duration       // for one's turn, and for the body to come
}

func newBodies() *bodies {
	return &bodies{room: room.New(maxHeld), trees: semaphore.NewWeighted(maxTrees), wait: time.Minute}
}

// judge waits for its turn, and says whether a body may pass.
func (b *bodies) judge(
	ctx context.Context, rt *route.Route, e *route.Endpoint, path string, h *held,
) (judge.Told, error) {
	if err := b.turn(ctx, b.trees); err != nil {
		return judge.Told{}, err
	}
	defer b.trees.Release(1)
	told, refused := judge.Body(rt, e, path, h.data)
	if refused != nil {
		return told, refused
	}
	if rt.Limits.TokensPerDay > 0 {
		h.most = min(judge.Most(e.Body, h.data), rt.Limits.TokensPerDay)
	}
	return told, nil
}

// turn takes a turn, and waits for that if it has to.
func (b *bodies) turn(ctx context.Context, of *semaphore.Weighted) error {
	if of.TryAcquire(1) { // without a timer, which a stream would keep
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.wait, errBusy)
	defer cancel()
	if of.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// read reads a body whole, and unpacks it. The deadline is that of the connection's reads.
func (h *held) read(ctx context.Context, r *http.Request, wait time.Duration, deadline func(time.Time) error) error {
	packed := r.Header.Get("Content-Encoding") // judged by judge.Head
	most := route.MaxBody + 1
	switch {
	case r.ContentLength == 0:
		return nil
	case r.ContentLength > route.MaxBody:
		return errTooLarge
	case r.ContentLength > 0 && packed == "":
		most = int(r.ContentLength)
	}
	if err := deadline(time.Now().Add(wait)); err != nil {
		return errIncoming
	}
	forget := context.AfterFunc(ctx, func() { deadline(time.Unix(1, 0)) })
	from := &judge.Incoming{From: r.Body}
	b := &room.Buffer{Hold: h.hold, Ctx: ctx, Most: most}
	data, refused := judge.Unpack(packed, from, route.MaxBody, b.ReadAll)
	h.put(data)
	forget()
	var ended *no
	switch {
	case errors.As(context.Cause(ctx), &ended):
		return ended
	case h.hold.Gave():
		return room.ErrFull
	case errors.Is(from.Err, os.ErrDeadlineExceeded): // net/http ends the request's context, too
		return errSlow
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case refused != nil:
		return refused
	case from.Err != nil:
		return errIncoming
	}
	// The connection reads on, to see whether the client hangs up.
	return deadline(time.Time{})
}

// held is a request's body in memory. It has room for its capacity.
type held struct {
	most int64 // tokens that the request may come to, where the route limits them
	hold *room.Hold

	mu    sync.Mutex
	data  []byte
	sent  bool // all of it, once
	began bool // the answer: nobody will want to send it again
}

// put has h hold what was read into a buffer of its hold.
func (h *held) put(data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.data = data
}

// drop lets the bytes go.
func (h *held) drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropLocked()
}

func (h *held) dropLocked() {
	h.hold.Give(int64(cap(h.data)))
	h.data = nil
}

// forget lets go what is kept for the case alone that it has to be sent again. It says whether there was such.
func (h *held) forget() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.sent || h.data == nil {
		return false
	}
	h.dropLocked()
	return true
}

// answered says that the answer has begun.
func (h *held) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.began = true; h.sent {
		h.dropLocked()
	}
}

// reader sends the body from its beginning.
func (h *held) reader() (io.ReadCloser, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.data == nil {
		return nil, errForgotten
	}
	return io.NopCloser(&sending{held: h, left: len(h.data)}), nil
}

// sending reads a held body once.
type sending struct {
	held *held
	left int
}

func (s *sending) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	h := s.held
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.data == nil {
		return 0, errForgotten
	}
	n := copy(b, h.data[len(h.data)-s.left:])
	h.hold.Moved(n)
	if s.left -= n; s.left > 0 {
		return n, nil
	}
	if h.sent = true; h.began || len(h.data) > maxKept {
		h.dropLocked()
	}
	return n, io.EOF
}
