package keeper

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/metric"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
)

// publisher owns what others may read of the keeper: the status, the files beside it, and
// the audit log. Until there is a directory for them, nothing is written.
type publisher struct {
	log     *slog.Logger
	version string // of agent-init
	record  audit.Recorder
	dir     state.Dir

	writing   sync.Mutex  // one writer of files at a time
	rendering sync.Mutex  // one of the policy
	owed      atomic.Bool // of the files, one could not be written

	leasesNext time.Time // when the leases may be written again for having changed; under writing

	mu     sync.Mutex
	state  state.State
	audit  *audit.Log // nil: there is none yet
	leased lease.Books
}

// openLog falls back to the runtime directory on a read-only root, and says so
// in the status: such a log is gone with the container. It returns what ends the log.
func (p *publisher) openLog(o audit.Options) (end func() error, err error) {
	var errs []error
	for _, o.Dir = range []string{state.AuditDir, string(p.dir) + "/log"} {
		l, err := audit.Open(o)
		if errors.Is(err, audit.ErrInUse) { // a log elsewhere would be missed in this one
			return nil, fault.New(fault.Rules, "give each container a volume of its own at "+o.Dir+", or end the other one", "%w", err)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p.update(func(s *state.State) { p.audit, s.Audit.File = l, o.Dir+"/"+audit.FileName })
		go func() {
			for range l.Changed() { // who asks for the status is told at once
				p.publish()
			}
		}()
		limiter := audit.NewLimiter(l.Write)
		go limiter.Run(context.Background())
		p.record = limiter.Record
		return func() error { limiter.Flush(); return l.Close() }, nil
	}
	return nil, fault.New(fault.Rules, "mount a directory that belongs to root at "+state.AuditDir, "no audit log can be written: %w", errors.Join(errs...))
}

func (p *publisher) guardian(v audit.Verdict, reason string) {
	p.record(audit.Event{Kind: audit.Guard, Verdict: v, Reason: reason})
}

func (p *publisher) update(f func(*state.State)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.state)
}

func (p *publisher) status() state.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *publisher) ready() bool { return p.status().Phase == state.PhaseReady }

// publish writes the state and the metrics for everyone. A disk that can't be written does not
// stop the keeper: readers see that the file is old.
func (p *publisher) publish() {
	if p.dir == "" {
		return
	}
	// The copy is taken by who writes, or an older one could be written last.
	p.writing.Lock()
	defer p.writing.Unlock()
	p.mu.Lock()
	leased, log := p.leased, p.audit
	p.mu.Unlock()
	names, elements := leased.Counts()
	fault, head, found := "", audit.Head{}, uint64(0)
	if log != nil {
		head, found = log.Head(), log.Found()
		if err := log.Err(); err != nil { // which waits for a disk that is slow
			fault = err.Error()
		}
	}
	p.update(func(s *state.State) {
		s.Published, s.Leases.Names, s.Leases.Elements = time.Now(), names, elements
		s.Audit.Fault, s.Audit.Head, s.Audit.Found = fault, head, found
	})
	s := p.status()
	data, err := state.Indented(s)
	if err == nil {
		err = p.dir.Renew(state.StatusFile, 0o644, data)
	}
	if err != nil {
		p.log.Error("publishing the state", "error", err)
	}
	var metrics bytes.Buffer
	_ = metric.WriteText(&metrics, s.Metrics(p.version, s.Published)) // a buffer takes all
	if err := p.dir.Renew(state.MetricFile, 0o644, metrics.Bytes()); err != nil {
		p.log.Error("publishing the metrics", "error", err)
	}
}

// unless has what could not be written be written later.
func (p *publisher) unless(err error, what string) {
	if err != nil {
		p.log.Error("publishing "+what, "error", err)
		p.owed.Store(true)
	}
}

// publishLeases writes the leases if anything about them has changed since the
// count of changes before, and returns the present count.
func (p *publisher) publishLeases(before uint64) uint64 {
	p.writing.Lock()
	defer p.writing.Unlock()
	began := time.Now()
	r, now := p.leased.Report(before)
	if r != nil {
		p.unless(p.dir.Write(state.LeasesFile, 0o644, r), "the leases")
	}
	p.leasesNext = time.Now().Add(min(leasesShare*time.Since(began), leasesLate))
	return now
}

// Writing the leases whenever they have changed takes a part of the time that leasesShare divides, and the file is no
// older than leasesLate: a list is as long as the agent makes it, and competes with what ends next.
const (
	leasesShare = 30
	leasesLate  = 10 * time.Second
)

// publishLeasesInTurn is publishLeases, or leaves it to a later call.
func (p *publisher) publishLeasesInTurn(before uint64) uint64 {
	p.writing.Lock()
	next := p.leasesNext
	p.writing.Unlock()
	if time.Now().Before(next) {
		return before
	}
	return p.publishLeases(before)
}

// publishPolicy writes the policy that is in force, and what agents are told about it.
func (k *keeper) publishPolicy() {
	k.rendering.Lock() // whoever is last writes what is in force
	defer k.rendering.Unlock()
	f := k.book.now()
	k.unless(k.dir.WriteWith(state.PolicyFile, 0o644, func(w io.Writer) error {
		return state.WriteRules(w, k.config.PolicyDir, f.bundle.Hosts, f.policy)
	}), "the policy")
	k.unless(k.dir.WriteWith(state.ReadmeFile, 0o644, func(w io.Writer) error {
		return writeReadme(w, f.policy, f.grants.List, k.status().Monitor)
	}), "what agents are told")
}

// publishGrants writes the book for everyone to read. One change at a time calls it.
func (p *publisher) publishGrants(b grant.Book) {
	p.writing.Lock()
	defer p.writing.Unlock()
	p.update(func(s *state.State) {
		count := map[grant.Kind]int{}
		s.Grants.Saved = 0
		for _, g := range b.List {
			if g.Saved {
				s.Grants.Saved++
			} else {
				count[g.Kind]++
			}
		}
		s.Grants.Allowed, s.Grants.Denied, s.Grants.Requests = count[grant.Allow], count[grant.Deny], count[grant.Request]
	})
	list := append(append([]grant.Grant{}, b.List...), b.Decided...)
	p.unless(p.dir.Write(state.GrantsFile, 0o644, grant.Report{Version: 1, Grants: list}), "the grants")
}
