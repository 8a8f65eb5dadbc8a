package broker

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/broker"
	"github.com/agent-init/agent-init/pkg/broker/login"
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
	roots   *x509.CertPool
	journal journal
	prefix  string    // of the agent's token
	refused bool      // the provider has refused the token
	next    time.Time // not tried before
	delay   time.Duration
	over    bool // a person has to log in again
	told    bool // the agent has what stands in its place
}

const (
	refreshTime = 30 * time.Second // for one try
	firstDelay  = 10 * time.Second // after one that failed
	longDelay   = 10 * time.Minute
	lookEvery   = time.Minute
)

func newLogins(p *process) *logins {
	return &logins{of: p, wake: make(chan struct{}, 1), held: map[string]*held{}}
}

// take has the login of a route, and returns it as it is to be used now. What is known already stays: its file is older,
// or the same.
func (l *logins) take(r route.Route, file []byte, roots *x509.CertPool, j journal) (*login.Login, error) {
	fresh, err := login.Parse(file)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.held[r.Name]
	if h == nil || h.Asked() != fresh.Asked() || h.Access() != fresh.Access() {
		h = &held{Login: fresh, delay: firstDelay}
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
	untold := map[string]*held{}
	for name, h := range l.held {
		if !h.told {
			h.told, untold[name] = true, h
		}
	}
	l.mu.Unlock()
	for name, h := range untold {
		if err := l.keep(ctx, name, h.Placeholder(h.prefix+l.of.token), wire.KeepStandIn); err != nil && ctx.Err() == nil {
			l.of.log.Warn("what stands in the place of a login", "route", name, "error", err)
		}
	}
}

// due are the routes whose login is to be refreshed now, or has an answer in its journal.
func (l *logins) due(now time.Time) (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, h := range l.held {
		if waits := h.over || now.Before(h.next); !waits && (h.refused || h.Due(now) || h.journal.read(h.Asked()) != nil) {
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
	h.next = time.Now().Add(h.delay)
	h.delay = min(2*h.delay, longDelay)
	old, asked := h.Login, h.Asked()
	l.mu.Unlock()

	status, answer := http.StatusOK, h.journal.read(asked)
	if answer == nil {
		var err error
		if status, answer, err = l.ask(ctx, old, h.roots); err != nil {
			return fmt.Errorf("ask %s: %w", old.Host(), err)
		}
		if status == http.StatusOK {
			if err := h.journal.write(asked, answer); err != nil {
				l.of.log.Warn("the answer to a refresh is not in the journal", "route", name, "error", err)
			}
		}
	}
	next, err := old.Answer(status, answer, time.Now())
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		h.over = errors.Is(err, login.ErrOver)
		return errors.Join(err, h.journal.clear())
	}
	if err := l.keep(ctx, name, next.File(), 0); err != nil {
		return err
	}
	if err := h.journal.clear(); err != nil {
		l.of.log.Warn("the journal of a login", "route", name, "error", err)
	}
	l.mu.Lock()
	if l.held[name] == h { // else another file has come meanwhile
		h.Login, h.refused, h.next, h.delay = next, false, time.Now().Add(firstDelay), firstDelay
	}
	l.mu.Unlock()
	return l.of.relogged(name, next.File())
}

// keep has the keeper write what a login is from now on, or what stands in its place.
func (l *logins) keep(ctx context.Context, name string, text []byte, flag uint8) error {
	reply, err := l.of.asks.Ask(ctx, wire.Message{Op: wire.OpKeep, Flag: flag, Name: name, Text: string(text)})
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
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, to string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(to)
			if err != nil {
				return nil, err
			}
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil {
				return nil, err
			}
			return l.of.hosts.dial(ctx, host, uint16(n))
		},
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}
	resp, err := transport.RoundTrip(r) // which follows no redirect
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, login.MaxAnswer+1))
	if err == nil && len(answer) > login.MaxAnswer {
		err = errors.New("its answer is too long")
	}
	return resp.StatusCode, answer, err
}
