package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// child is a process of ours without privileges that serves the agent: the guard, or the broker. It is kept running.
// While there is none, its sockets turn away whoever connects.
type child struct {
	*base
	who       string // as people call it
	sender    audit.Sender
	spec      privdrop.Spec
	door      *lent                        // where it is asked
	meanwhile string                       // what is so while there is none, "" if all is refused
	gets      []*os.File                   // what it gets behind its configuration and channels
	hear      func(audit.Event)            // is told what it reports; may be nil
	part      func(*state.State) partState // what is published of it

	ready chan struct{} // closed when the first one serves
	once  sync.Once

	service  stage.Service
	events   *net.UnixConn // of the present one
	reported chan struct{} // closed when all of these were read

	mu    sync.Mutex
	live  *wire.Channel                // the channel of the one that serves now, if any
	asked map[uint32]chan wire.Message // what the present one has not answered yet
	sent  uint32
}

// partState is where the state of a child is published.
type partState struct {
	ok       *bool
	fault    *string
	restarts *int
	seen     *time.Time
}

// keep makes the service that keeps c running: start gives each process what else it needs, and serve answers it.
func (c *child) keep(patience time.Duration, maxText int, start func(channel *os.File) (*reaper.Process, error), serve func(context.Context, *wire.Channel) error) {
	c.ready, c.asked = make(chan struct{}), map[uint32]chan wire.Message{}
	name := strings.TrimPrefix(c.who, "the ")
	c.service = stage.Service{
		Who: c.who, Patience: patience, Log: c.log,
		MaxText: maxText, Start: start, Serve: serve,
		Seen: func() time.Time {
			s := c.status()
			return *c.part(&s).seen
		},
		Lost: c.lost, Gone: c.gone,
		Failed: func(err error, restart time.Duration) {
			c.log.Error(c.who+" ended; "+cmp.Or(c.meanwhile, "all is refused")+" until the next one serves", "error", err, "restart_in", restart)
			c.guardian(audit.Fault, fmt.Sprintf("%s ended: %v; restart in %v", name, err, restart))
			c.update(func(s *state.State) {
				p := c.part(s)
				*p.ok, *p.fault = false, err.Error()
				*p.restarts++
			})
			c.publish()
		},
	}
}

func (c *child) lost() (over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = nil
	for id, answer := range c.asked {
		close(answer)
		delete(c.asked, id)
	}
	return false
}

// gone is called when there is no process: connections are refused until the next one.
func (c *child) gone() {
	if err := c.door.refuse(); err != nil {
		c.log.Error("refusing connections", "without", c.who, "error", err)
	}
	if c.events == nil { // it could not be started
		return
	}
	select {
	case <-c.reported:
	case <-time.After(stage.FarewellTime):
	}
	c.events.Close()
	c.events = nil
}

// spawn starts a process with its configuration, and with more before what every one gets.
func (c *child) spawn(channel *os.File, config any, more ...*os.File) (*reaper.Process, error) {
	if err := c.door.accept(); err != nil {
		return nil, fmt.Errorf("listen for %s: %w", c.who, err)
	}
	events, theirs, err := wire.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	files := append(append([]*os.File{channel, theirs}, more...), c.gets...)
	o := stage.Options{Spec: c.spec, Config: config, Files: files, Stderr: c.diagnostics(), Rank: stage.GuardGoes}
	o.Spec.ParentPID = parentPID()
	proc, err := stage.Spawn(c.reaper, o)
	if err != nil {
		events.Close()
		return nil, err
	}
	reported := make(chan struct{})
	c.events, c.reported = events, reported
	go func() { c.readAudit(events); close(reported) }()
	return proc, nil
}

// readAudit records what a process reports, which is neither trusted nor
// unlimited: numbers and bounded texts, see audit.Pack.
func (c *child) readAudit(conn *net.UnixConn) {
	buf := make([]byte, audit.MaxPacked+1)
	for {
		n, err := conn.Read(buf)
		if err != nil || n == 0 {
			return
		}
		e := ofSelfTest(audit.Untrusted(c.sender, buf[:n]))
		if c.hear != nil {
			c.hear(e)
		}
		c.record(e)
	}
}

// ofSelfTest says of a request that only a self-test makes, and that is refused whoever makes it, that it is a self-test's.
func ofSelfTest(e audit.Event) audit.Event {
	if e.Kind == audit.Broker && e.Verdict == audit.Deny && e.Method == selftest.Method {
		e.Asker = audit.BySelfTest
	}
	return e
}

// begun takes the channel of one that serves from now on.
func (c *child) begun(ch *wire.Channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = ch
}

// serves publishes it.
func (c *child) serves() {
	again := false
	c.update(func(s *state.State) {
		p := c.part(s)
		again = *p.restarts > 0
		*p.ok, *p.fault, *p.seen = true, "", time.Now()
	})
	if again {
		c.guardian(audit.Info, strings.TrimPrefix(c.who, "the ")+" serves again")
	}
	c.publish()
	c.once.Do(func() { close(c.ready) })
}

// ask sends the serving process a message, and a file with it, which may be nil. What is returned is closed once that has
// answered, or is gone; an answer comes first.
func (c *child) ask(m wire.Message, file *os.File) (<-chan wire.Message, *wire.Channel, error) {
	answer := make(chan wire.Message, 1)
	c.mu.Lock()
	ch := c.live
	if ch != nil {
		c.sent++
		c.asked[c.sent] = answer
	}
	m.ID = c.sent
	c.mu.Unlock()
	if ch == nil {
		return nil, nil, errors.New("there is no process of " + c.who)
	}
	return answer, ch, ch.Send(m, file)
}

// hand is ask with v in a file, if there is one.
func (c *child) hand(op wire.Op, name string, v any) (<-chan wire.Message, *wire.Channel, error) {
	if v == nil {
		return c.ask(wire.Message{Op: op}, nil)
	}
	f, err := wire.Memfd(name, v)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return nil, c.live, err
	}
	defer f.Close()
	return c.ask(wire.Message{Op: op}, f)
}

// answered takes the answer to what was asked.
func (c *child) answered(m wire.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer := c.asked[m.ID]; answer != nil {
		answer <- m // there is room for it
		close(answer)
		delete(c.asked, m.ID)
	}
}

// awaitTaken waits for an answer, but not for long.
func (c *child) awaitTaken(taken <-chan wire.Message) {
	if taken == nil {
		return
	}
	select {
	case <-taken:
	case <-time.After(700 * time.Millisecond): // what is no longer allowed is to end within a second
		c.log.Warn(c.who + " is late to take what it was told")
	}
}
