package broker

import (
	"errors"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/broker/room"
	"github.com/agent-init/agent-init/pkg/route"
)

// no is why a request is not answered by the API.
type no = judge.Refusal

func refusal(what, text string) *no { return &no{What: what, Text: text} }

// unclear is about an address that can't be asked.
func unclear(err error) *no {
	var n *no
	if errors.As(err, &n) {
		return n
	}
	return refusal("path", err.Error())
}

// badBody says why a body could not be read.
func badBody(err error) *no {
	var judged *no
	switch {
	case errors.As(err, &judged):
		return judged
	case errors.Is(err, errTooLarge):
		return refusal("size", err.Error())
	case errors.Is(err, errSlow):
		return refusal("slow", err.Error())
	case errors.Is(err, errBusy), errors.Is(err, room.ErrFull):
		return refusal("busy", err.Error())
	}
	return refusal("body", err.Error())
}

// say is the answer to a request that goes no further, in the form that the route's API gives its errors.
func (x *exchange) say(n *no) (status int, head http.Header, body []byte) {
	x.event.Refused = n.What + ": " + n.Text
	var shape route.Shape
	if x.way != nil {
		shape = x.way.route.Shape
	}
	var rules route.Body
	if x.endpoint != nil {
		rules = x.endpoint.Body
	}
	status, kind, body := n.Response(shape, rules)
	head = http.Header{"Content-Type": {kind}, "Content-Length": {strconv.Itoa(len(body))}}
	if !n.Temporary() {
		head.Set("X-Should-Retry", "false") // the SDKs of Anthropic and OpenAI obey it
	}
	if status == http.StatusUpgradeRequired {
		head.Set("Upgrade", "HTTP/1.1") // RFC 9110, section 15.5.22
	}
	return status, head, body
}

// refuse answers in the place of the API.
func (x *exchange) refuse(n *no) {
	x.body.drop()
	status, head, body := x.say(n)
	if n.What == gone {
		x.abort(0)
	}
	x.caller.refusing.Store(true)
	x.own(status, head, body)
}

// own writes an answer that is the broker's own.
func (x *exchange) own(status int, head http.Header, body []byte) {
	maps.Copy(x.w.Header(), head)
	x.control.SetWriteDeadline(time.Now().Add(x.proxy.idle))
	x.w.WriteHeader(status)
	x.w.Write(body)
	if x.control.Flush() != nil { // before it is recorded, which may take a while
		status = 0
	}
	x.over(status)
}

// abort ends an exchange whose client is to see that the answer is not whole.
func (x *exchange) abort(status int) {
	x.over(status)
	panic(http.ErrAbortHandler)
}
