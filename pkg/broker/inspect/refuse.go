package inspect

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/route"
)

// no is why a request goes no further.
type no = judge.Refusal

// gone is a refusal that nobody is told of.
const gone = "gone"

func refusal(what, text string) *no { return &no{What: what, Text: text} }

// refuse answers a request that goes no further.
func (x *exchange) refuse(w http.ResponseWriter, n *no) {
	x.event.Refused = n.What + ": " + n.Text
	if n.Rule != "" {
		x.event.Rule = n.Rule
	}
	if n.What == gone {
		panic(http.ErrAbortHandler) // else net/http says 200
	}
	status, kind, body := n.Response(route.PlainShape, route.Empty)
	h := w.Header()
	clear(h)
	switch n.What {
	case "authority":
		status = http.StatusMisdirectedRequest
	case "version":
		status = http.StatusHTTPVersionNotSupported
	case "coding":
		status = http.StatusUnsupportedMediaType
	}
	if strings.HasPrefix(x.asked.Header.Get("Content-Type"), "application/grpc") && x.asked.ProtoMajor == 2 {
		// A client of gRPC's shows a message only if it stands here (https://grpc.io/docs/guides/status-codes).
		h.Set("Content-Type", "application/grpc")
		h.Set("Grpc-Status", strconv.Itoa(grpcStatus(status)))
		h.Set("Grpc-Message", url.PathEscape("refused by agent-init: "+n.Text))
		x.event.Status = status
		w.WriteHeader(http.StatusOK)
		return
	}
	if x.asked.ProtoMajor == 1 && x.asked.ContentLength != 0 {
		h.Set("Connection", "close") // else net/http waits for the body before it answers
		x.conn.unread.Store(true)
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if !n.Temporary() {
		h.Set("X-Should-Retry", "false")
	}
	x.event.Status = status
	w.WriteHeader(status)
	w.Write(body)
}

// grpcStatus is the status of gRPC's that stands for one of HTTP's.
func grpcStatus(status int) int {
	switch status {
	case http.StatusRequestEntityTooLarge:
		return 8 // RESOURCE_EXHAUSTED
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return 14 // UNAVAILABLE
	case http.StatusUnauthorized:
		return 16 // UNAUTHENTICATED
	}
	return 7 // PERMISSION_DENIED
}
