package broker

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/broker"
	"github.com/agent-init/agent-init/pkg/broker/login"
	"github.com/agent-init/agent-init/pkg/broker/onward"
	"github.com/agent-init/agent-init/pkg/route"
)

// logins are the logins of routes. Each is refreshed before its token ends, or when the provider refuses it.
type logins struct {
	of   *process
	wake chan struct{} // something is to be looked at before its time

	mu   sync.Mutex
	held map[string]*held // by route
}

// held is the login of one route.
type held struct {
	*login.Login
	mark    uint64 // of its file
	roots   *x509.CertPool
	journal journal
	unkept  []byte    // the answer to a refresh, until it is kept: the journal may not have taken it
	prefix  string    // of the agent's token
	refused bool      // the provider has refused the token
	next    time.Time // not tried before
	delay   time.Duration
	since   time.Time // it is the provider's last answer; zero: it is of a file
	over    bool      // a person has to log in again
	told    bool      // the agent has what stands in its place
}

const (
	refreshTime = 30 * time.Second // for one try
	firstDelay  = 10 * time.Second // after the first try
	longDelay   = 10 * time.Minute
	calmTime    = time.Hour // who has held so long is tried at once again
	lookEvery   = time.Minute
)

func newLogins(p *process) *logins {
	return &logins{of: p, wake: make(chan struct{}, 1), held: map[string]*held{}}
}

// take has the login of a route, and returns it as it is to be used now. What is known of the same file stays.
func (l *logins) take(r route.Route, file []byte, roots *x509.CertPool, j journal) (*login.Login, error) {
	fresh, err := login.Parse(file)
	if err != nil {
		return nil, err
	}
	if fresh.Host() != r.LoginHost { // its tokens are not for whom this route asks
		return nil, fmt.Errorf("it is a login of %s, and another's than this route's", fresh.Vendor())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h, mark := l.held[r.Name], wire.Mark(file)
	if h == nil || h.mark != mark {
		h = &held{Login: fresh, mark: mark, delay: firstDelay}
		l.held[r.Name] = h
	}
	h.roots, h.journal, h.prefix = roots, j, r.TokenPrefix
	l.look()
	return h.Login, nil
}

// only forgets the logins of other routes.
func (l *logins) only(names map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.held {
		if !names[name] {
			delete(l.held, name)
		}
	}
}

func (l *logins) look() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// heard takes notice of a token that the provider refuses.
func (l *logins) heard(e broker.Event) {
	if e.Status != http.StatusUnauthorized || e.Refused != "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.held[e.Route]; h != nil && e.Fingerprint == route.Fingerprint([]byte(h.Access())) {
		h.refused = true
		l.look()
	}
}

// run refreshes logins until ctx ends, one after the other.
func (l *logins) run(ctx context.Context) {
	clock := time.NewTicker(lookEvery)
	defer clock.Stop()
	for {
		for _, name := range l.due(time.Now()) {
			if err := l.refresh(ctx, name); err != nil && ctx.Err() == nil {
				l.of.log.Warn("refreshing a login", "route", name, "error", err)
				l.of.over(broker.Event{Route: name, Refused: "login: " + err.Error()})
			}
		}
		l.tell(ctx)
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-clock.C:
		}
	}
}

// tell has the agent get what stands in the place of each login.
func (l *logins) tell(ctx context.Context) {
	l.mu.Lock()
	untold := map[*held]wire.Message{}
	for name, h := range l.held {
		if !h.told {
			text := string(h.Placeholder(h.prefix + l.of.token))
			untold[h] = wire.Message{Flag: wire.KeepStandIn, Name: name, Text: text}
		}
	}
	l.mu.Unlock()
	for h, standIn := range untold {
		if err := l.keep(ctx, standIn); err != nil { // it is tried again
			if ctx.Err() == nil {
				l.of.log.Warn("what stands in the place of a login", "route", standIn.Name, "error", err)
			}
			continue
		}
		l.mu.Lock()
		h.told = true
		l.mu.Unlock()
	}
}

// due are the routes whose login is to be refreshed now, or has an answer in its journal.
func (l *logins) due(now time.Time) (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, h := range l.held {
		if waits := h.over || now.Before(h.next); !waits && (h.refused || h.Due(now) || h.unkept != nil || h.journal.read(h.Asked()) != nil) {
			names = append(names, name)
		}
	}
	return names
}

// refresh has a login replaced by the next one: asked for, in the journal, kept by the keeper, and only then used.
func (l *logins) refresh(ctx context.Context, name string) error {
	l.mu.Lock()
	h := l.held[name]
	if h == nil {
		l.mu.Unlock()
		return nil
	}
	h.wait(time.Now())
	old, roots, journal, asked, of := *h, h.roots, h.journal, h.Asked(), h.mark
	l.mu.Unlock()

	unlock, err := journal.lock()
	if err != nil {
		return err
	}
	defer unlock()
	status, answer := http.StatusOK, journal.read(asked)
	if answer == nil {
		answer = old.unkept
	}
	if answer == nil {
		// The answer makes the old token void. Nobody asks for one that can't be kept.
		if err := l.keep(ctx, wire.Message{Flag: wire.KeepTry, Name: name, Arg: of}); err != nil {
			return err
		}
		if err := journal.reserve(); err != nil {
			return fmt.Errorf("the login can't be refreshed, since there is no room for the answer: %w", err)
		}
		status, answer, err = l.ask(ctx, old.Login, roots)
		if !login.Answered(status) || len(answer) == 0 {
			switch {
			case errors.Is(err, errTooLong):
				return fmt.Errorf("ask %s: %w", old.Host(), err)
			case err != nil: // the server's words, and net/http's, may quote the token to refresh
				return fmt.Errorf("ask for a login: %w", onward.FaultOf(old.Host(), err))
			}
		} else { // what came of it may be all of the tokens, also if it broke off
			l.mu.Lock()
			h.unkept = answer
			l.mu.Unlock()
			if err := journal.write(asked, answer); err != nil {
				l.of.log.Warn("the answer to a refresh is not in the journal", "route", name, "error", err)
			}
		}
	}
	next, err := old.Answer(status, answer, time.Now())
	if errors.Is(err, login.ErrUnread) {
		l.mu.Lock()
		defer l.mu.Unlock()
		h.over = true // what was asked with may be void: to show it again can end the whole login
		where := "is kept beside the login, in the file that ends in .answer"
		if journal.f == nil {
			where = "could be kept nowhere"
		}
		return fmt.Errorf("what %s answered can't be read, and %s: log in again, and put the new login in the place of "+
			"the old one", old.Host(), where)
	}
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		h.over = errors.Is(err, login.ErrOver)
		return errors.Join(err, journal.clear())
	}
	file := next.File()
	if err := l.keep(ctx, wire.Message{Name: name, Arg: of, Text: string(file)}); err != nil {
		return err
	}
	if err := journal.clear(); err != nil {
		l.of.log.Warn("the journal of a login", "route", name, "error", err)
	}
	return l.of.relogged(name, file, func() bool { return l.adopt(name, h, next, wire.Mark(file)) })
}

// wait has a login not tried again for a while, and for longer each time. That a try has succeeded alone ends that not: a
// provider may give tokens that it refuses, or refuse one whenever the agent likes.
func (h *held) wait(now time.Time) {
	if !h.since.IsZero() && now.Sub(h.since) >= calmTime {
		h.delay = firstDelay
	}
	h.next, h.delay = now.Add(h.delay), min(2*h.delay, longDelay)
}

// adopt has h be next from now on, unless another file has come meanwhile.
func (l *logins) adopt(name string, h *held, next *login.Login, mark uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[name] != h {
		return false
	}
	h.Login, h.mark, h.refused, h.since, h.unkept = next, mark, false, time.Now(), nil
	return true
}

// keep has the keeper write what a login is from now on, or what stands in its place.
func (l *logins) keep(ctx context.Context, m wire.Message) error {
	m.Op = wire.OpKeep
	reply, err := l.of.asks.Ask(ctx, m)
	switch {
	case err != nil:
		return fmt.Errorf("have the login kept: %w", err)
	case reply.Err:
		return fmt.Errorf("the login can't be kept: %s", reply.Text)
	}
	return nil
}

// ask asks the provider for the next tokens.
func (l *logins) ask(ctx context.Context, of *login.Login, roots *x509.CertPool) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, refreshTime)
	defer cancel()
	path, body := of.Request()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+of.Host()+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	transport := onward.NewTransport(roots, l.of.hosts.dial)
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r) // which follows no redirect
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, login.MaxAnswer+1))
	if len(answer) > login.MaxAnswer {
		answer, err = answer[:login.MaxAnswer], errTooLong
	}
	return resp.StatusCode, answer, err
}

var errTooLong = errors.New("its answer is too long")
