package broker

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/broker/room"
	"github.com/agent-init/agent-init/pkg/route"
)

// upload is a body that goes on while it comes: of any length, and never held. What is judged of it is read ahead.
type upload struct {
	x     *exchange
	a     *answer
	came  incoming  // what is left of the body
	from  io.Reader // the same unpacked
	ahead []byte    // read before anything went on
	room  int64     // that it takes
	whole bool      // that is all
	limit int64     // of bytes, unpacked
	sent  atomic.Int64
	fault atomic.Pointer[no] // why it ended early

	mu     sync.Mutex // held while a deadline is set
	closed bool
}

// continues tells a client to send what it has announced (RFC 9110, section 10.1.1). net/http has refused all else that
// may be expected.
const continues = "HTTP/1.1 100 Continue\r\n\r\n"

// upload judges what a body begins with, and sends it on as it comes. What net/http has read of it is in buffered.
func (x *exchange) upload(r *http.Request, buffered *bufio.Reader) {
	a, ok := x.answering()
	if !ok {
		return
	}
	u := &upload{x: x, a: a, limit: maxUpload}
	if x.endpoint.Body == route.GitUpload {
		u.limit = route.MaxBody
	}
	x.up = u
	context.AfterFunc(a.ctx, func() {
		if x.ended() != nil {
			u.Close() // the transport returns no sooner than its read does
		}
	})
	if r.Header.Get("Expect") != "" && a.write([]byte(continues)) != nil {
		a.fail(refusal(gone, errHungUp.Error()))
		return
	}
	push, n := u.begin(a.ctx, r, buffered)
	if n != nil {
		a.decline(u, push, n)
		return
	}
	out, err := x.request(r)
	if err != nil {
		a.fail(unclear(err))
		return
	}
	switch {
	case u.whole:
		u.sent.Store(int64(len(u.ahead)))
	case r.Header.Get("Content-Encoding") == "":
		out.Body, out.ContentLength = u, r.ContentLength // which some servers of objects want
	default:
		out.Body, out.ContentLength = u, -1
	}
	a.ask(out)
}

// begin reads ahead: the commands of a push, which are judged, and a small body whole. That one can be sent again if the
// server has gone away meanwhile, and goes with its length, since not every server takes one without.
func (u *upload) begin(ctx context.Context, r *http.Request, buffered *bufio.Reader) (push *judge.Push, n *no) {
	u.came.from = &exactly{from: buffered, left: r.ContentLength}
	if r.ContentLength < 0 {
		u.came.from = httputil.NewChunkedReader(buffered)
	}
	u.until(u.x.proxy.bodies.wait)
	var err error
	if u.from, err = judge.Unpacked(r.Header.Get("Content-Encoding"), &u.came); err != nil {
		return nil, u.bad(err)
	}
	ahead := &room.Buffer{Hold: u.x.hold, Ctx: ctx, Most: judge.MaxCommands + maxAhead}
	if u.x.endpoint.Body == route.GitReceive {
		var refused *judge.Refusal
		commands := refs{ahead}
		if push, refused, err = judge.ReadPush(&u.x.way.route, io.TeeReader(u.from, commands)); err != nil {
			return push, u.bad(err)
		}
		if refused != nil {
			return push, &no{Refusal: refused}
		}
		if n := u.x.learn(func() { u.x.known.push = push }); n != nil {
			return push, n
		}
	}
	if came := len(ahead.Bytes()); came < maxAhead {
		u.until(u.x.proxy.idle)
		_, err = io.CopyN(ahead, u.from, int64(maxAhead-came))
		if u.whole = errors.Is(err, io.EOF); err != nil && !u.whole {
			return push, u.bad(err)
		}
	}
	if u.ahead = ahead.Bytes(); push != nil && len(push.Refs) == 0 && !(u.whole && len(u.ahead) == len("0000")) {
		return push, refusal("push", "a push without a command ends after that")
	}
	if u.room = int64(cap(u.ahead)); u.whole {
		u.x.body.put(u.ahead)
	}
	return push, nil
}

// refs takes the room for what judge.ReadPush keeps of the commands as long as the push lasts, beside that for the
// commands.
type refs struct{ *room.Buffer }

func (r refs) Write(p []byte) (int, error) {
	if err := r.Hold.Take(r.Ctx, int64(len(p))); err != nil {
		return 0, err
	}
	return r.Buffer.Write(p)
}

// maxAhead is what is read ahead of a body. It is less than maxKept: a small body is kept until its answer begins.
const maxAhead = 32 << 10

// maxUpload is the length of a push that is no limit: a server has its own.
const maxUpload = 1 << 40

// bad says why the body could not be read.
func (u *upload) bad(err error) *no {
	switch {
	case u.x.hold.Gave():
		return badBody(room.ErrFull)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return badBody(errSlow)
	case errors.Is(err, errTooLarge):
		return badBody(err)
	case errors.Is(u.came.err, io.ErrUnexpectedEOF), errors.As(u.came.err, new(*net.OpError)):
		return refusal(gone, errHungUp.Error())
	}
	return badBody(errIncoming)
}

// until sets how long the next bytes of the client may take.
func (u *upload) until(wait time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.x.caller.SetReadDeadline(time.Now().Add(wait))
	}
}

// Read is for net/http's transport, which sends the body.
func (u *upload) Read(b []byte) (n int, err error) {
	if len(u.ahead) > 0 {
		n = copy(b, u.ahead)
		if u.ahead = u.ahead[n:]; len(u.ahead) == 0 {
			u.ahead = nil
			u.x.hold.Give(u.room)
		}
	} else {
		u.until(u.x.proxy.idle)
		n, err = u.from.Read(b)
	}
	if sent := u.sent.Add(int64(n)); sent > u.limit {
		err = errTooLarge
	}
	if u.a.silence.Reset(u.x.proxy.idle); err != nil && !errors.Is(err, io.EOF) {
		u.fault.CompareAndSwap(nil, u.bad(err))
	}
	return n, err
}

// Close ends a read that waits for the client: the transport waits for that.
func (u *upload) Close() error {
	u.fault.CompareAndSwap(nil, &no{}) // what follows is no fault of the client's
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	return u.x.caller.SetReadDeadline(time.Unix(1, 0))
}

// no is why the body has ended early, nil if it has not.
func (u *upload) no() *no {
	if u == nil {
		return nil
	}
	if n := u.fault.Load(); n != nil && n.Refusal != nil {
		return n
	}
	return nil
}

const (
	// maxWaste and wasteTime bound what is read of a refused body: a client that sends it may look at the answer only when
	// it has, and an end of the connection before that could take the answer along (RFC 9112, section 9.6).
	maxWaste  = 4 << 30
	wasteTime = time.Minute
)

// decline answers in the place of the server, when the body has come: to a push in git's own words.
func (a *answer) decline(u *upload, push *judge.Push, n *no) {
	var said []byte
	if u.came.err == nil {
		u.until(wasteTime)
		_, _ = io.Copy(io.Discard, io.LimitReader(&u.came, maxWaste))
		if push != nil {
			said, _ = push.Refused(n.Refusal)
		}
	}
	if said == nil {
		a.fail(n)
		return
	}
	defer a.end()
	a.x.event.Refused = n.What + ": " + n.Text
	head := http.Header{
		"Content-Type": {"application/x-git-receive-pack-result"}, "Cache-Control": {"no-cache"}, "Content-Length": {strconv.Itoa(len(said))},
	}
	status := http.StatusOK // git reads the reasons nowhere else
	if a.write(append(headOf(status, head), said...)) != nil {
		status = 0
	}
	a.x.over(status)
}

// exactly reads so many bytes, and says so if there are fewer.
type exactly struct {
	from io.Reader
	left int64
}

func (e *exactly) Read(b []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.from.Read(b[:min(int64(len(b)), e.left)])
	if e.left -= int64(n); errors.Is(err, io.EOF) && e.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
