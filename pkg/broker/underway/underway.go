// Package underway holds what goes on, and judges all of it anew by each policy that comes.
package underway

import "sync"

// Flow is what goes on: a request, or a connection. Both methods are called with the set locked, so they wait for nothing.
type Flow[P any] interface {
	comparable

	// Judge returns nil if the policy allows the flow, by all that is known of it so far.
	Judge(policy P) error

	// End ends the flow. It may be called again.
	End(why error)
}

// Set is what goes on, and the policy that it is judged by.
type Set[P any, F Flow[P]] struct {
	mu     sync.Mutex
	policy P
	all    map[F]struct{}
}

// Load puts policy in force, and ends what it does not allow.
func (s *Set[P, F]) Load(policy P) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policy = policy
	for f := range s.all {
		if err := f.Judge(policy); err != nil {
			f.End(err)
		}
	}
}

// Policy is the one in force.
func (s *Set[P, F]) Policy() P {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policy
}

// Begin takes f in, and returns the policy that it begins with.
func (s *Set[P, F]) Begin(f F) P {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[F]struct{}{}
	}
	s.all[f] = struct{}{}
	return s.policy
}

// Learn has note add to what is known of f, and judges f by the policy in force. So either Learn or the next Load judges
// by what was noted.
func (s *Set[P, F]) Learn(f F, note func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	note()
	return f.Judge(s.policy)
}

// Over forgets f.
func (s *Set[P, F]) Over(f F) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, f)
}

// Len is how many go on.
func (s *Set[P, F]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// EndAll ends what goes on, whatever it is.
func (s *Set[P, F]) EndAll(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.all {
		f.End(why)
	}
}
