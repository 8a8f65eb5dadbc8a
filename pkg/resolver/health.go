package resolver

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/agent-init/agent-init/pkg/policy"
)

// Window is the time of which Health tells how many questions there were.
const Window = windowParts * windowPart

const (
	windowParts = 10
	windowPart  = 30 * time.Second
)

// Health is how the servers of one list have been answering, all who ask them taken together.
type Health struct {
	mu       sync.Mutex
	list     []policy.Upstream
	answered time.Time
	by       netip.AddrPort
	failing  time.Time // since when no question was answered; zero: the last one was
	silent   time.Time // the same, once a second question has shown that it is not about one name
	good     question  // that was answered last
	asking   bool      // one asks again
	parts    [windowParts]struct {
		begun         time.Time
		asked, failed uint64
	}
}

// Answering is what Health knows at a moment.
type Answering struct {
	Answered      time.Time      // when a server did last, with whatever; zero: none has yet
	By            netip.AddrPort // which one
	Silent        time.Time      // since when no server has answered any question; zero: the last was answered
	Asked, Failed uint64         // within the Window: questions, and those that no server answered
}

// Look returns what is known at now.
func (h *Health) Look(now time.Time) Answering {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := Answering{Answered: h.answered, By: h.by, Silent: h.silent}
	for _, p := range h.parts {
		if now.Sub(p.begun) < Window {
			a.Asked, a.Failed = a.Asked+p.asked, a.Failed+p.failed
		}
	}
	return a
}

// of begins anew if list is another one.
func (h *Health) of(list []policy.Upstream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.list, list) {
		h.list, h.good = slices.Clone(list), question{}
		h.answered, h.by, h.failing, h.silent = time.Time{}, netip.AddrPort{}, time.Time{}, time.Time{}
		clear(h.parts[:])
	}
}

// worked notes that a server of list has answered.
func (h *Health) worked(s *server, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Contains(h.list, s.Upstream) {
		h.answered, h.by, h.failing, h.silent = now, s.Addr, time.Time{}, time.Time{}
	}
}

// ended counts a question that was asked at begun, and what came of it. It says whether the caller is to ask again until
// somebody answers: one does.
func (h *Health) ended(asked []*server, q question, answered bool, begun, now time.Time) (again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(asked) == 0 || !slices.EqualFunc(h.list, asked, func(u policy.Upstream, s *server) bool { return s.Upstream == u }) {
		return false // others are asked by now
	}
	p := &h.parts[now.Unix()/int64(windowPart/time.Second)%windowParts]
	if now.Sub(p.begun) >= windowPart {
		p.begun, p.asked, p.failed = now, 0, 0
	}
	p.asked++
	if answered {
		h.good = q
		return false
	}
	p.failed++
	if h.answered.After(begun) { // another question
		return false
	}
	if h.failing.IsZero() {
		h.failing = begun
	}
	again = !h.asking
	h.asking = true
	return again
}

// next returns the question by which to find out whether anybody answers: of two, by turns, that which was answered
// last. It is none once somebody has.
func (h *Health) next(turn int, failed question, allowed func(string) bool) (question, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := failed
	if turn%2 == 0 && allowed(h.good.name) {
		q = h.good
	}
	if h.failing.IsZero() || !allowed(q.name) {
		h.failing, h.silent, h.asking = time.Time{}, time.Time{}, false
		return q, false
	}
	return q, true
}

// unanswered is for when another question has had no answer either.
func (h *Health) unanswered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.silent = h.failing
}

// How soon it is asked again while no server answers.
const (
	againFirst = time.Second
	againMost  = 8 * time.Second
)

// askAgain finds out whether any server answers, behind a question that none has answered, and then when one does. Names
// that the policy does not allow any more are not asked for.
func (s *Server) askAgain(failed question) {
	allowed := func(name string) bool { return s.config.Policy().Lookup(name).Allowed }
	wait := againFirst
	for turn := 0; ; turn++ {
		q, ok := s.config.Health.next(turn, failed, allowed)
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(s.life, s.patience)
		_, _ = s.exchange(ctx, q) // which notes whether a server has answered
		cancel()
		s.config.Health.unanswered()
		select {
		case <-time.After(wait):
		case <-s.life.Done():
			return
		}
		wait = min(2*wait, againMost)
	}
}
