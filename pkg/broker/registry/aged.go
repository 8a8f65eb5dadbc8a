package registry

import (
	"hash/maphash"
	"sync"
)

// aged remembers files that are old enough. They stay so, and nobody has to be asked again.
type aged struct {
	mu        sync.Mutex
	seed      maphash.Seed
	now, then map[uint64]struct{}
}

// maxAged is how many there are in each of the two generations.
const maxAged = 1 << 16

func (a *aged) key(name, file string) uint64 {
	if a.now == nil {
		a.seed, a.now = maphash.MakeSeed(), map[uint64]struct{}{}
	}
	return maphash.Comparable(a.seed, [2]string{name, file})
}

func (a *aged) has(name, file string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.key(name, file)
	_, recent := a.now[k]
	_, before := a.then[k]
	return recent || before
}

func (a *aged) add(name, file string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.key(name, file)
	if len(a.now) == maxAged {
		a.now, a.then = make(map[uint64]struct{}, maxAged), a.now
	}
	a.now[k] = struct{}{}
}
