package broker

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
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
	r     *http.Request
	came  judge.Incoming // what is left of the body
	from  io.Reader      // the same unpacked
	ahead []byte         // read before anything went on
	room  int64          // that it takes
	whole bool           // that is all
	limit int64          // of bytes, unpacked
	sent  atomic.Int64
	fault atomic.Pointer[no] // why it ended early

	reading sync.Mutex // held while the transport reads

	mu     sync.Mutex // held while a deadline is set
	closed bool
}

// upload judges what a body begins with, and sends it on as it comes.
func (x *exchange) upload(r *http.Request) {
	a := x.answering()
	defer a.silence.Stop()
	x.forget() // until the body has come: its end may be a refusal, or no end of the client's
	u := &upload{x: x, a: a, r: r, limit: maxUpload}
	if x.endpoint.Body == route.GitUpload {
		u.limit = route.MaxBody
	}
	x.up = u
	defer u.end()
	x.control.EnableFullDuplex() // a server may answer before it has the body
	context.AfterFunc(a.ctx, func() {
		if x.ended() != nil {
			u.Close() // the transport returns no sooner than its read does
		}
	})
	push, n := u.begin(a.ctx)
	if n != nil {
		u.decline(push, n)
		return
	}
	out, err := x.request(r)
	if err != nil {
		x.refuse(unclear(err))
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
func (u *upload) begin(ctx context.Context) (push *judge.Push, n *no) {
	u.came.From = u.r.Body
	u.until(u.x.proxy.bodies.wait)
	var err error
	if u.from, err = judge.Unpacked(u.r.Header.Get("Content-Encoding"), &u.came); err != nil {
		return nil, u.bad(err)
	}
	ahead := &room.Buffer{Hold: u.x.hold, Ctx: ctx, Most: judge.MaxCommands + maxAhead}
	if u.x.endpoint.Body == route.GitReceive {
		commands := refs{ahead}
		if push, n, err = judge.ReadPush(&u.x.way.route, io.TeeReader(u.from, commands)); err != nil {
			return push, u.bad(err)
		}
		if n != nil {
			return push, n
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
		u.over()
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
	case errors.Is(u.came.Err, io.ErrUnexpectedEOF), errors.As(u.came.Err, new(*net.OpError)):
		return refusal(gone, errHungUp.Error())
	}
	return badBody(errIncoming)
}

// until sets how long the next bytes of the client may take.
func (u *upload) until(wait time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.x.control.SetReadDeadline(time.Now().Add(wait))
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
		u.reading.Lock()
		n, err = u.from.Read(b)
		u.reading.Unlock()
	}
	if sent := u.sent.Add(int64(n)); sent > u.limit {
		err = errTooLarge
	}
	u.a.silence.Reset(u.x.proxy.idle)
	switch {
	case errors.Is(err, io.EOF):
		u.over()
	case err != nil:
		u.fault.CompareAndSwap(nil, u.bad(err))
	}
	return n, err
}

// over is for when the body has come: net/http reads on, to see whether the client hangs up.
func (u *upload) over() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.closed = true
		u.x.watch(u.r)
	}
}

// Close ends a read that waits for the client: the transport waits for that.
func (u *upload) Close() error {
	u.fault.CompareAndSwap(nil, &no{}) // what follows is no fault of the client's
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil
	}
	u.closed = true
	return u.x.control.SetReadDeadline(time.Unix(1, 0))
}

// end has nobody wait for what is left of the body: the server may have had enough of it before its end. net/http would
// lift the deadline for a read that it meets, and wait for the client.
func (u *upload) end() {
	u.mu.Lock()
	u.closed = true
	u.x.caller.refusing.Store(true)
	u.x.control.SetReadDeadline(time.Unix(1, 0))
	u.mu.Unlock()
	u.reading.Lock()
	defer u.reading.Unlock()
}

// no is why the body has ended early, nil if it has not.
func (u *upload) no() *no {
	if u == nil {
		return nil
	}
	if n := u.fault.Load(); n != nil && n.What != "" {
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
func (u *upload) decline(push *judge.Push, n *no) {
	var said []byte
	if u.came.Err == nil {
		u.until(wasteTime)
		_, _ = io.Copy(io.Discard, io.LimitReader(&u.came, maxWaste))
		if push != nil {
			said, _ = push.Refused(n)
		}
	}
	if said == nil {
		u.x.refuse(n)
		return
	}
	u.x.event.Refused = n.What + ": " + n.Text
	u.x.own(http.StatusOK, http.Header{ // git reads the reasons nowhere else
		"Content-Type": {"application/x-git-receive-pack-result"}, "Cache-Control": {"no-cache"}, "Content-Length": {strconv.Itoa(len(said))},
	}, said)
}
