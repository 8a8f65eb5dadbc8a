package ui

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/launch"
)

// The pace of looking. Nothing is looked at unless a page asks.
const (
	listEvery   = 1500 * time.Millisecond
	statusEvery = 10 * time.Second // it changes more seldom than what waits
	atOnce      = 4                // containers that are asked at a time
	maxShown    = 100              // containers on the page
)

// fleet is what is known of the containers. A container that doesn't answer holds up neither the page nor the others.
type fleet struct {
	engine launch.Engine
	places chan struct{} // a place for each container that is asked just now

	mu     sync.Mutex
	begun  time.Time     // of the newest look
	busy   bool          // there is one just now
	first  chan struct{} // closed once there is something to show
	fault  string        // of the engine
	list   []launch.Container
	known  map[string]*insight // by a container's ID
	images []launch.Image
}

// insight is what a container said last.
type insight struct {
	busy     bool // it is asked just now
	grants   grants
	status   status
	statusAt time.Time
	fault    string
}

func newFleet(e launch.Engine) *fleet {
	return &fleet{engine: e, places: make(chan struct{}, atOnce), first: make(chan struct{}), known: map[string]*insight{}}
}

// look has a look taken if the last is some time ago, in the background of ctx, and returns once there is one.
func (f *fleet) look(ctx context.Context, done <-chan struct{}) {
	f.mu.Lock()
	due := !f.busy && time.Since(f.begun) > listEvery
	if due {
		f.busy, f.begun = true, time.Now()
	}
	f.mu.Unlock()
	if due {
		go f.refresh(ctx)
	}
	select {
	case <-f.first:
	case <-done:
	}
}

func (f *fleet) refresh(ctx context.Context) {
	list, err := f.engine.List(ctx)
	images, imagesErr := f.engine.Images(ctx, "")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy = false
	if f.fault = ""; err != nil {
		f.fault = clean(err.Error(), maxText)
	} else {
		f.list = list[:min(len(list), maxShown)]
	}
	if imagesErr == nil {
		f.images = images
	}
	there := map[string]*insight{}
	for _, c := range f.list {
		k := f.known[c.ID]
		if k == nil || !c.Running {
			k = &insight{}
		}
		there[c.ID] = k
		if c.Running && !k.busy {
			k.busy = true
			go f.ask(ctx, c.ID, k)
		}
	}
	f.known = there
	select {
	case <-f.first:
	default:
		close(f.first)
	}
}

// ask has a container say what waits, and now and then how it is.
func (f *fleet) ask(ctx context.Context, id string, k *insight) {
	f.places <- struct{}{}
	defer func() { <-f.places }()
	f.mu.Lock()
	s, at := k.status, k.statusAt
	f.mu.Unlock()
	var g grants
	err := f.inquire(ctx, id, &g, "grants", "--json")
	if err == nil && time.Since(at) > statusEvery {
		s, at = status{}, time.Now()
		err = f.inquire(ctx, id, &s, "status", "--json")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if k.busy, k.fault = false, ""; err != nil {
		k.fault = clean(err.Error(), maxText)
		return
	}
	k.grants, k.status, k.statusAt = g, s, at
}

// inquire reads what a command in a container prints as JSON. status ends with an error where not all is well, and
// prints nevertheless.
func (f *fleet) inquire(ctx context.Context, id string, into any, args ...string) error {
	out, _, err := run(ctx, f.engine, id, insideTime, args...)
	if bad := json.Unmarshal(out, into); bad == nil {
		return nil
	} else if err == nil {
		err = bad
	}
	return err
}

// waiting finds a request or a grant that a page showed. A container that started anew counts anew: the number alone
// could be of another one by now.
func (f *fleet) waiting(id string, number uint32, target string) (grant, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.known[id]; k != nil {
		for _, g := range k.grants.Grants {
			if g.Number == number && shown(g.Target) == target && g.Outcome == "" {
				return g, true
			}
		}
	}
	return grant{}, false
}

// still asks the container whether a request or a grant is what it was when a page showed it. The number of a request can
// be that of a denial once the container has started anew.
func (f *fleet) still(ctx context.Context, id string, was grant) bool {
	var now grants
	if f.inquire(ctx, id, &now, "grants", "--json") != nil {
		return false
	}
	return slices.ContainsFunc(now.Grants, func(g grant) bool {
		return g.Number == was.Number && g.Kind == was.Kind && g.Target == was.Target && g.Made.Equal(was.Made) && g.Outcome == ""
	})
}

// has says whether a page may name this container: one of the list.
func (f *fleet) has(id string) (c launch.Container, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.list {
		if c.ID == id {
			return c, true
		}
	}
	return c, false
}

// forget has a container asked again at the next look, after something was done to it.
func (f *fleet) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun = time.Time{}
}
