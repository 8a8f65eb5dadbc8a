package broker

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/broker/registry"
	"github.com/agent-init/agent-init/pkg/broker/room"
)

const (
	// maxDocuments are the bytes of registries' documents that are held at once. To judge one takes up to as much again.
	maxDocuments = 2 * registry.MaxDocument

	documentTime = 2 * time.Minute // for one to come
)

// consulting is an exchange that a registry's rules decide.
type consulting struct {
	x     *exchange
	agent string // the client, by its own words
	hold  *room.Hold
}

// consult says what is asked of the registry's server for the file that out asks for, or answers itself.
func (x *exchange) consult(a *answer, out *http.Request) (*http.Request, bool) {
	c := &consulting{x: x, agent: out.Header.Get("User-Agent")}
	c.hold = x.proxy.documents.Hold(func() { x.cancel(errDocuments) })
	a.moved = c.hold.Moved
	defer c.hold.End()
	got, err := x.way.registry.Answer(a.ctx, registry.Request{
		Path: x.path, Base: x.base, Accept: out.Header.Get("Accept"), Agent: c.agent,
	}, c.ask)
	var refused *no
	switch {
	case errors.As(err, &refused):
		x.refuse(refused)
	case err != nil:
		x.refuse(x.fault(a.ctx, x.goal, err))
	case got.File == nil:
		a.hand(got)
	default:
		x.goal = x.way.to(got.File.To)
		if n := x.learn(func() { x.known.to = got.File.To }); n != nil {
			x.refuse(n)
			return nil, false
		}
		// Of the first head, nothing goes on that was put on: this may be another host.
		file, err := x.goal.request(out.Method, got.File.Path, "", judge.PassHeaders(&x.way.route, out.Header))
		if err == nil {
			return file, true
		}
		x.refuse(refusal("path", err.Error()))
	}
	return nil, false
}

// hand writes an answer that is the broker's own, and ends the exchange.
func (a *answer) hand(got *registry.Answer) {
	x := a.x
	defer a.untilEnd()()
	size := 0
	for _, b := range got.Body {
		size += len(b)
	}
	head := http.Header{"Content-Length": {strconv.Itoa(size)}}
	if got.Type != "" {
		head.Set("Content-Type", got.Type)
	}
	x.event.FirstByte = time.Since(x.began)
	err := a.begin(got.Status, head)
	if err == nil && x.event.Method != http.MethodHead {
		w := bufio.NewWriterSize(deadlined{a}, 8<<10) // the body has many small parts
		for _, b := range got.Body {
			n, _ := w.Write(b)
			x.event.Received += int64(n)
		}
		err = w.Flush()
	}
	if err == nil {
		x.over(got.Status)
		return
	}
	if n := x.ended(); n != nil {
		x.event.Refused = n.What + ": " + n.Text
	}
	x.abort(got.Status)
}

// deadlined writes to who asked, who may be slow.
type deadlined struct{ *answer }

func (d deadlined) Write(b []byte) (int, error) {
	if err := d.write(b); err != nil {
		return 0, err
	}
	d.moved(len(b))
	return len(b), nil
}

// ask reads a document of a registry's server whole.
func (c *consulting) ask(ctx context.Context, q registry.Question) (*registry.Document, error) {
	g := c.x.way.to(q.To)
	r, err := g.request(q.Method, q.Path, "", http.Header{"Accept": {q.Accept}, "User-Agent": {c.agent}})
	if err != nil {
		return nil, refusal("server", "a path of the registry's is not clear")
	}
	ctx, cancel := context.WithTimeout(ctx, documentTime)
	defer cancel()
	r.Header.Set("Accept-Encoding", "gzip")
	resp, err := g.up.ask(r.WithContext(ctx))
	if err != nil {
		return nil, c.x.fault(ctx, g, err)
	}
	defer resp.Body.Close()
	if s := resp.StatusCode; s < 200 || s > 299 && s < 400 || s > 599 {
		return nil, strange(g, s)
	}
	d := &registry.Document{Status: resp.StatusCode, Type: resp.Header.Get("Content-Type")}
	d.Modified, _ = http.ParseTime(resp.Header.Get("Last-Modified"))
	if q.Method != http.MethodHead {
		d.Body, err = c.read(ctx, resp)
	}
	return d, err
}

// read reads a body, as large as there is room for.
func (c *consulting) read(ctx context.Context, resp *http.Response) ([]byte, error) {
	from := io.Reader(resp.Body)
	var err error
	switch resp.Header.Get("Content-Encoding") {
	case "", "identity":
	case "gzip":
		if from, err = gzip.NewReader(resp.Body); err != nil {
			return nil, refusal("server", "what the registry answered can't be unpacked")
		}
	default:
		return nil, refusal("server", "what the registry answered is packed in a way that was not asked for")
	}
	b := &room.Buffer{Hold: c.hold, Ctx: ctx, Most: registry.MaxDocument}
	data, err := b.ReadAll(from)
	switch {
	case c.hold.Gave():
		return nil, errDocuments
	case errors.Is(err, io.ErrShortBuffer):
		return nil, refusal("server", fmt.Sprintf("what the registry answered has more than %d MiB", registry.MaxDocument>>20))
	case err != nil:
		return nil, refusal("upstream", "what the registry answered did not come whole")
	}
	return data, nil
}

var errDocuments = refusal("busy", "documents of registries fill the memory that there is for them, and this one was the slowest: ask for fewer at once")
