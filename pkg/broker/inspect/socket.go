package inspect

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/buffer"
)

// upgrade passes a WebSocket on. The server has agreed to one, or it is refused.
func (x *exchange) upgrade(w http.ResponseWriter, out *http.Request, resp *http.Response) {
	server, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || !x.admitted.WebSocket || !strings.EqualFold(resp.Header.Get("Upgrade"), "websocket") {
		resp.Body.Close()
		x.refuse(w, refusal("server", x.conn.name+" changed to another protocol than was asked for"))
		return
	}
	defer server.Close()
	client, buffered, err := x.control.Hijack()
	if err != nil {
		x.event.Refused = gone + ": the client hung up"
		return
	}
	defer client.Close()
	head := http.Header{}
	x.back(head, resp.Header)
	head["Connection"], head["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	x.event.Status = http.StatusSwitchingProtocols
	client.SetDeadline(time.Time{})
	if err := writeHead(client, head); err != nil {
		return
	}
	var once sync.Once
	end := func(n *no) {
		once.Do(func() {
			if n != nil {
				x.event.Refused = n.What + ": " + n.Text
			}
			client.Close()
			server.Close()
		})
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-x.ctx.Done():
			n := x.ended()
			if n.What == gone {
				n = nil // the end of what the client sends cancels too, and is a good one
			}
			end(n)
		case <-ended:
		}
	}()
	var both sync.WaitGroup
	both.Go(func() {
		f := &frames{masked: true}
		end(x.relay(server, buffered, f))
	})
	both.Go(func() {
		f := &frames{}
		end(x.relay(client, server, f))
		x.event.Received = f.payload
	})
	both.Wait()
}

// writeHead writes the head of an agreement. http.Header has it that no value breaks out of its line.
func writeHead(w io.Writer, h http.Header) error {
	var b strings.Builder
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	h.Write(&b)
	b.WriteString("\r\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// relay passes frames on, until one end closes, or sends what is none.
func (x *exchange) relay(to io.Writer, from io.Reader, f *frames) *no {
	var buf buffer.Buffer
	defer buf.Free()
	for {
		b := buf.Bytes()
		n, err := from.Read(b)
		x.silence.heard()
		if n > 0 {
			if f.masked {
				f.most = x.body.most.Load() // as it is by now
			}
			if n := f.walk(b[:n]); n != nil {
				return n
			}
			if f.masked {
				x.body.sent.Store(f.payload)
			}
			if _, err := to.Write(b[:n]); err != nil {
				return nil
			}
		}
		if err != nil {
			return nil
		}
		buf.Fit(n, n == len(b))
	}
}
