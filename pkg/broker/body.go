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
	"github.com/agent-init/agent-init/pkg/route"
)

const (
	// maxHeld are the bytes of all requests' bodies that are held at once. Who comes then waits for its turn.
	maxHeld = 2 * route.MaxBody

	// maxKept is a body that is held until the answer begins, so that it can be sent again if the server never looked
	// at it (it went away, RFC 9113, section 6.8). A larger one goes as soon as it is sent.
	maxKept = 64 << 10

	// maxTrees are the bodies that are judged at once. One of small values takes 40 MiB until that is over.
	maxTrees = 2
)

var (
	errTooLarge  = errors.New("the body is larger than 32 MiB")
	errBusy      = errors.New("too many large requests at once")
	errSlow      = errors.New("the body did not come in time")
	errIncoming  = errors.New("the body did not come whole")
	errForgotten = errors.New("the body was sent already")
)

// bodies bounds what all requests hold.
type bodies struct {
	room  *semaphore.Weighted // first come, first served
	trees *semaphore.Weighted // likewise
	wait  time.Duration       // for one's turn, and then for the body to come
}

func newBodies() *bodies {
	return &bodies{room: semaphore.NewWeighted(maxHeld), trees: semaphore.NewWeighted(maxTrees), wait: time.Minute}
}

// judge waits for its turn, and says whether a body may pass.
func (b *bodies) judge(
	ctx context.Context, rt *route.Route, e *route.Endpoint, path string, h *held,
) (judge.Told, error) {
	if err := b.turn(ctx, b.trees, 1); err != nil {
		return judge.Told{}, err
	}
	defer b.trees.Release(1)
	told, refused := judge.Body(rt, e, path, h.data)
	if refused != nil {
		return told, &no{Refusal: refused}
	}
	if rt.Limits.TokensPerDay > 0 {
		h.most = min(judge.Most(e.Body, h.data), rt.Limits.TokensPerDay)
	}
	return told, nil
}

// turn takes n of what there is, and waits for that if it has to.
func (b *bodies) turn(ctx context.Context, of *semaphore.Weighted, n int64) error {
	if of.TryAcquire(n) { // without a timer, which a stream would keep
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.wait)
	defer cancel()
	if of.Acquire(ctx, n) != nil {
		return errBusy
	}
	return nil
}

// read reads a body whole, and unpacks it. The deadline is that of the connection's reads.
func (b *bodies) read(ctx context.Context, r *http.Request, deadline func(time.Time) error) (*held, error) {
	packed := r.Header.Get("Content-Encoding") // judged by judge.Head
	size := r.ContentLength
	switch {
	case size == 0:
		return &held{}, nil
	case size > route.MaxBody:
		return nil, errTooLarge
	case size < 0 || packed != "":
		size = route.MaxBody // nobody knows yet
	}
	if err := b.turn(ctx, b.room, size); err != nil {
		return nil, err
	}
	h := &held{all: b, room: size}
	if err := h.fill(r, packed, deadline); err != nil {
		h.drop()
		return nil, err
	}
	h.shrink()
	return h, nil
}

// fill takes the bytes.
func (h *held) fill(r *http.Request, packed string, deadline func(time.Time) error) error {
	if err := deadline(time.Now().Add(h.all.wait)); err != nil {
		return errIncoming
	}
	from := &incoming{from: r.Body}
	var refused *judge.Refusal
	if packed == "" && r.ContentLength > 0 {
		h.data = make([]byte, r.ContentLength)
		if n, _ := io.ReadFull(from, h.data); n < len(h.data) && from.err == nil {
			from.err = io.ErrUnexpectedEOF
		}
	} else {
		h.data, refused = judge.Unpack(packed, from, route.MaxBody)
	}
	switch {
	case errors.Is(from.err, os.ErrDeadlineExceeded):
		return errSlow
	case refused != nil:
		return &no{Refusal: refused}
	case from.err != nil:
		return errIncoming
	}
	// The connection reads on, to see whether the client hangs up.
	return deadline(time.Time{})
}

// incoming remembers why a body ended before its end.
type incoming struct {
	from io.Reader
	err  error
}

func (i *incoming) Read(b []byte) (int, error) {
	n, err := i.from.Read(b)
	if err != nil && err != io.EOF {
		i.err = err
	}
	return n, err
}

// held is a request's body in memory, with the room that it takes.
type held struct {
	most int64 // tokens that the request may come to, where the route limits them
	all  *bodies

	mu    sync.Mutex
	data  []byte
	room  int64
	sent  bool // all of it, once
	began bool // the answer: nobody will want to send it again
}

// shrink gives back room that was taken for a length that nobody knew.
func (h *held) shrink() { h.keep(int64(len(h.data))) }

// keep gives back what is more than n.
func (h *held) keep(n int64) {
	if spare := h.room - n; spare > 0 {
		h.all.room.Release(spare)
		h.room -= spare
	}
}

// drop lets the bytes go.
func (h *held) drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropLocked()
}

func (h *held) dropLocked() {
	if h.data = nil; h.room > 0 {
		h.all.room.Release(h.room)
		h.room = 0
	}
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
	if s.left -= n; s.left > 0 {
		return n, nil
	}
	if h.sent = true; h.began || len(h.data) > maxKept {
		h.dropLocked()
	}
	return n, io.EOF
}
