package keeper

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/window"
)

// notifier tells people what becomes of requests: that one waits, and that it was decided. It learns that from the book
// and from nothing else, so who decides, and on which way, makes no difference.
type notifier struct {
	mu      sync.Mutex
	session *window.Session // nil: there is none, or not yet
	errands *errands        // nil: not yet
	decided func(target string)
	last    grant.Book
}

// requestNews is what has become of a request.
type requestNews struct {
	grant.Grant
	decided bool // else it is new, and waits
}

// announce publishes the book, and tells people what is new about requests. One change at a time calls it.
func (b *book) announce(grants grant.Book) {
	b.publishGrants(grants)
	b.notifier.hear(grants)
}

// hear compares a book with the one before. It waits for nobody.
func (n *notifier) hear(next grant.Book) {
	n.mu.Lock()
	defer n.mu.Unlock()
	news := newsOf(n.last, next)
	n.last = next
	if len(news) == 0 {
		return
	}
	n.ring()
	for _, one := range news {
		if one.decided && n.decided != nil {
			n.decided(one.Target)
		}
		if !one.decided && n.errands != nil {
			n.errands.approvals.post(one.Grant)
		}
		if n.errands != nil {
			n.errands.put(one.notification(len(waiting(next))))
		}
	}
}

// begin has root's command run, from now on, until the keeper ends, and decided told what is.
func (n *notifier) begin(e *errands, decided func(target string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.errands, n.decided = e, decided
	e.look()
	ctx, cancel := context.WithCancel(context.Background())
	go e.run(ctx)
	e.atEnd(func() error { return e.stop(cancel) })
}

// look is for a policy that was read again.
func (n *notifier) look() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.errands != nil {
		n.errands.look()
	}
}

// inert takes out of a reason, for a line that chat programs show, what they make more of than text: a link that looks
// like another one, or a call to everybody (docs.slack.dev/messaging/formatting-message-text).
var inert = strings.NewReplacer("<", "(", ">", ")", "[", "(", "]", ")", "@", " at ")

const eventRequested, eventDecided = "requested", "decided"

// notification is the news as root's command is told it.
func (r requestNews) notification(waiting int) notification {
	told := r.Grant
	told.Reason = inert.Replace(told.Reason)
	n := notification{Version: 1, Event: eventRequested, Text: lineOf(told), Request: r.Grant, Waiting: waiting}
	if r.decided {
		n.Event, n.Text = eventDecided, r.Standing()
	}
	n.Container, _ = os.Hostname()
	return n
}

// attach has a session ring, from now on.
func (n *notifier) attach(s *window.Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.session = s
	if len(waiting(n.last)) > 0 {
		n.ring()
	}
}

// ring shows what waits in the session, or that nothing does any more. The lock is held.
func (n *notifier) ring() {
	if n.session != nil {
		n.session.Notice(noticeOf(waiting(n.last)))
	}
}

// newsOf are the requests that were booked, and those that were decided, on the way from one book to the next.
func newsOf(last, next grant.Book) (news []requestNews) {
	since := func(of, before []grant.Grant, decided bool) {
		for _, g := range of {
			if !slices.ContainsFunc(before, func(h grant.Grant) bool { return h.Number == g.Number }) {
				news = append(news, requestNews{g, decided})
			}
		}
	}
	since(next.Decided, last.Decided, true)
	since(waiting(next), waiting(last), false)
	return news
}

// waiting are the requests that nobody has decided, oldest first.
func waiting(b grant.Book) (out []grant.Grant) {
	for _, g := range b.List {
		if g.Kind == grant.Request {
			out = append(out, g)
		}
	}
	return out
}

// noticeOf is the line about what waits, of which the oldest is named; empty where nothing does. That is where the
// session's list begins, and no further request can take its place between this line and a person's key. Target and
// reason are plain ASCII by then (wire.CheckRequest).
func noticeOf(waiting []grant.Grant) string {
	if len(waiting) == 0 {
		return ""
	}
	g := waiting[0]
	line := lineOf(g)
	if more := len(waiting) - 1; more > 0 {
		line += fmt.Sprintf(" (and %d more)", more)
	}
	return line
}

// lineOf is a request that waits, in one line.
func lineOf(g grant.Grant) string {
	line := fmt.Sprintf("request %d: %s", g.Number, g.Target)
	if g.Reason != "" {
		line += fmt.Sprintf(", %q", g.Reason)
	}
	return line
}
