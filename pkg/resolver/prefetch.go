package resolver

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// prefetchers is how many names are resolved ahead at once. Clients can ask
// many times as much meanwhile.
const prefetchers = 16

// Prefetch resolves the exact names ahead, so that their addresses are open and
// their answers in the cache. It returns once all are done or ctx ends. The
// error joins one for each name that has no address that could be opened, with
// the name in it. It may be called before and while Serve runs.
func (s *Server) Prefetch(ctx context.Context, names []string) error {
	next := make(chan int)
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for range min(prefetchers, len(names)) {
		wg.Go(func() {
			for i := range next {
				errs[i] = s.prefetch(ctx, names[i])
			}
		})
	}
	for i := range names {
		next <- i // not cut short by ctx: each name then says so at once
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// prefetch resolves both families of name; one address is enough.
func (s *Server) prefetch(ctx context.Context, name string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", name, ctx.Err())
	}
	p := s.config.Policy()
	if len(p.Hosts(name)) > 0 {
		return nil
	}
	if !p.Lookup(name).Allowed {
		return fmt.Errorf("%s: not in the allowlist", name)
	}
	got := make(chan *answer, 2)
	for _, qtype := range []uint16{typeA, typeAAAA} {
		key := string(cacheKey(nil, []byte(name), qtype))
		a, ok := s.ask(key, name, qtype, &asker{client: client{count: &s.uncounted, own: true}}, func(a *answer) { got <- a })
		switch {
		case !ok:
			return fmt.Errorf("%s: the resolver has stopped", name)
		case a != nil:
			got <- a
		}
	}
	cause := "no address"
	found := false
	for range 2 {
		select {
		case a := <-got:
			found = found || len(a.addrs) > 0
			switch {
			case a.text != "":
				cause = a.text
			case a.rcode == rcodeNXDomain:
				cause = "no such name"
			}
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", name, ctx.Err())
		}
	}
	if !found {
		return fmt.Errorf("%s: %s", name, cause)
	}
	return nil
}
