package resolver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/miekg/dns"
)

// Prefetch resolves the exact names ahead, so that their addresses are open and their
// answers in the cache. It returns once all are done or ctx ends. The error names each
// that has no address that could be opened. It may be called before and while Serve runs.
func (s *Server) Prefetch(ctx context.Context, names []string) error {
	errs := make([]error, len(names))
	places := make(chan struct{}, 16) // clients can ask many times as much meanwhile
	var wg sync.WaitGroup
	for i, name := range names { // not cut short by ctx: each name then says so at once
		places <- struct{}{}
		wg.Go(func() {
			if err := s.prefetch(ctx, name); err != nil {
				errs[i] = fmt.Errorf("%s: %w", name, err)
			}
			<-places
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// prefetch resolves both families of name; one address is enough.
func (s *Server) prefetch(ctx context.Context, name string) error {
	p := s.config.Policy()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case len(p.Hosts(name)) > 0:
		return nil
	case !p.Lookup(name).Allowed:
		return errors.New("not in the allowlist")
	}
	got := make(chan *answer, 2)
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		who := &asker{client: client{count: &s.uncounted, own: true}, question: question{name, qtype}}
		a, ok := s.ask(who, func(a *answer) { got <- a })
		if !ok {
			return errors.New("the resolver has stopped")
		}
		if a != nil {
			got <- a
		}
	}
	cause := errors.New("no address")
	found := false
	for range 2 {
		select {
		case a := <-got:
			found = found || len(a.addrs) > 0
			if a.text != "" {
				cause = errors.New(a.text)
			} else if a.rcode == dns.RcodeNameError {
				cause = errors.New("no such name")
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if found {
		return nil
	}
	return cause
}
