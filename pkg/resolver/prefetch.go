package resolver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Of many names, those behind the first go out at a rate: hundreds of containers may have got a policy at once.
const (
	aheadAtOnce = 100
	aheadEvery  = time.Millisecond
)

// Prefetch resolves the exact names ahead, so that their addresses are open and their
// answers in the cache. It returns once all are done or ctx ends. The error names each
// that has no address that could be opened. It may be called before and while Serve runs.
func (s *Server) Prefetch(ctx context.Context, names []string) error {
	errs := make([]error, len(names))
	places := make(chan struct{}, 16) // clients can ask many times as much meanwhile
	tick := time.NewTicker(aheadEvery)
	defer tick.Stop()
	var wg sync.WaitGroup
	for i, name := range names { // not cut short by ctx: each name then says so at once
		if i >= aheadAtOnce {
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		places <- struct{}{}
		wg.Go(func() {
			if _, _, err := s.Lookup(ctx, name, time.Minute); err != nil {
				errs[i] = fmt.Errorf("%s: %w", name, err)
			}
			<-places
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Lookup returns the addresses of an exact name, which are open, and for how long they are good. They are of both
// families, but one that comes later than the other by more than patience is left out. The slice is the Server's.
func (s *Server) Lookup(ctx context.Context, name string, patience time.Duration) ([]netip.Addr, time.Duration, error) {
	p := s.config.Policy()
	switch addrs := p.Hosts(name); {
	case ctx.Err() != nil:
		return nil, 0, ctx.Err()
	case len(addrs) > 0:
		return addrs, localTTL * time.Second, nil
	case !p.Lookup(name).Allowed:
		return nil, 0, errors.New("not in the allowlist")
	}
	got, err := s.askBoth(name)
	if err != nil {
		return nil, 0, err
	}
	var addrs []netip.Addr
	ttl, cause := uint32(math.MaxUint32), errors.New("no address")
	var late <-chan time.Time
	for coming := 2; coming > 0; {
		select {
		case a := <-got:
			coming--
			if len(a.addrs) > 0 {
				addrs, ttl, late = append(addrs, a.addrs...), min(ttl, a.ttl), time.After(patience)
			}
			if a.text != "" {
				cause = errors.New(a.text)
			} else if a.rcode == dns.RcodeNameError {
				cause = errors.New("no such name")
			}
		case <-late:
			coming = 0
		case <-ctx.Done():
			coming = 0
		}
	}
	switch {
	case len(addrs) > 0:
		return addrs, time.Duration(ttl) * time.Second, nil
	case ctx.Err() != nil:
		return nil, 0, ctx.Err()
	}
	return nil, 0, cause
}

// askBoth asks for both families of name, and returns where the two answers come.
func (s *Server) askBoth(name string) (<-chan *answer, error) {
	got := make(chan *answer, 2)
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		who := &asker{client: client{count: &s.uncounted, own: true}, question: question{name, qtype}}
		a, ok := s.ask(who, func(a *answer) { got <- a })
		if !ok {
			return nil, errors.New("the resolver has stopped")
		}
		if a != nil {
			got <- a
		}
	}
	return got, nil
}
