package broker

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/broker/room"
	"github.com/agent-init/agent-init/pkg/route"
)

// no is why a request is not answered by the API.
type no struct{ *judge.Refusal }

func refusal(what, text string) *no { return &no{&judge.Refusal{What: what, Text: text}} }

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

// Error makes it one that a function returns.
func (n *no) Error() string { return n.Text }

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

// refuse answers a request that goes no further, while net/http has the connection.
func (x *exchange) refuse(w http.ResponseWriter, n *no) {
	status, head, body := x.say(n)
	for name, v := range head {
		w.Header()[name] = v
	}
	x.caller.refusing.Store(true)
	w.WriteHeader(status)
	w.Write(body)
	http.NewResponseController(w).Flush() // whoever records takes their time
	x.over(status)
}
