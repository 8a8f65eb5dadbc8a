package keeper

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// recorded is a packet filter that holds leases, and notes what it is asked to do. What takes longer for a full book waits
// until the guard was told.
type recorded struct {
	filter // what is not below is not called
	t      *testing.T
	told   chan struct{}          // closed when the guard was
	refuse error                  // by Apply
	leases func([]firewall.Lease) // told of each lease; not nil: leases wait for nobody

	mu   sync.Mutex
	held map[firewall.Element]bool
	did  []string
}

func (r *recorded) note(what string, of int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did = append(r.did, fmt.Sprintf("%s %d", what, of))
}

// behind fails the test if the guard is not told before this is done.
func (r *recorded) behind(what string) {
	select {
	case <-r.told:
	case <-time.After(time.Minute):
		r.t.Errorf("%s comes before the guard is told", what)
	}
}

func (r *recorded) Caveats(firewall.Plan) []string { return nil }

func (r *recorded) Apply(_ context.Context, _ firewall.Plan, ls []firewall.Lease) error {
	r.note("apply", len(ls))
	return r.refuse
}

func (r *recorded) Drop(_ context.Context, es []firewall.Element) error {
	if len(es) > 0 {
		r.note("drop", len(es))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range es {
		delete(r.held, e)
	}
	return nil
}

func (r *recorded) InUse(context.Context) (all []firewall.Use, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := range r.held {
		all = append(all, firewall.Use{Element: e})
	}
	return all, nil
}

func (r *recorded) Lease(_ context.Context, ls []firewall.Lease) error {
	if r.leases != nil {
		r.leases(ls)
	} else {
		r.behind("a lease")
	}
	r.note("lease", len(ls))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range ls {
		r.held[l.Element] = true
	}
	return nil
}

func (r *recorded) Retain(_ context.Context, _ []firewall.Element, wanted func(firewall.Element) bool) error {
	r.behind("a look at all leases")
	r.note("retain", 0)
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := range r.held {
		if !wanted(e) {
			r.t.Errorf("%v was not taken out", e)
		}
	}
	return nil
}

// changing is a keeper with n names below a wildcard, one address that two names have, and a guard that is told of policies.
func changing(t *testing.T, n int, list string) (*keeper, *recorded) {
	t.Helper()
	ours, theirs := channelPair(t)
	g := idleGuard()
	p := parsePolicy(t, list)
	b := g.base
	r := &recorded{t: t, told: make(chan struct{}), held: map[firewall.Element]bool{}}
	g.leases.fw, g.leases.books = r, lease.NewBooks(p, &wire.Edition{Uint64: new(atomic.Uint64)})
	b.dir, b.leased, g.asked = state.Dir(t.TempDir()), g.leases.books, map[uint32]chan wire.Message{}
	g.begun(ours)
	files := &policy.Bundle{Files: []policy.File{{Name: "policy.yaml", Data: []byte(list)}}, Phase: policy.Run}
	g.book.files = files
	g.book.present.Store(&inForce{bundle: files, policy: p})
	k := &keeper{base: b, book: g.book, leases: g.leases, guard: g, agent: &agent{base: b}}
	k.rules = &rules{base: b, fw: r}
	k.rules.fixed = firewall.Config{GuardUID: 64901, GuardGID: 77, DNSPort4: 1, DNSPort6: 1, GatePort4: 2, GatePort6: 2, AgentUID: 1000}
	ledger := g.leases.books.Of(firewall.Agent)
	book := func(name, addr string) {
		open, _ := ledger.Lease(name, addrs(addr), 10*time.Minute)
		for _, l := range open {
			r.held[l.Element] = true
		}
	}
	for i := range n {
		book(fmt.Sprintf("n%d.wild.test", i), netip.AddrFrom4([4]byte{45, 60, byte(i >> 8), byte(i)}).String())
	}
	book("gone.test", "45.30.0.1")
	book("shared.test", "45.30.0.2")
	book("stays.test", "45.30.0.2")
	go func() {
		for told := false; ; {
			m, f, err := theirs.Receive()
			if err != nil {
				return
			}
			if f != nil {
				f.Close()
			}
			if m.Op != wire.OpPolicy {
				continue
			}
			if !told {
				close(r.told)
			}
			told = true
			k.guard.answered(m)
		}
	}()
	return k, r
}

const manyNames = "domains: ['*.wild.test:443', gone.test:22, 'shared.test:443 direct', 'stays.test:443 direct', 'moves.test:443']\nlimits: {leases: 60000}\n"

// ways are the changes of what is in force, which take gone.test and shared.test away.
var ways = map[string]func(context.Context, *keeper, *policy.Policy) error{
	"denial": func(ctx context.Context, k *keeper, _ *policy.Policy) error {
		return k.changeGrants(ctx, func(b *grant.Book) ([]audit.Event, error) {
			for _, name := range []string{"gone.test", "shared.test"} {
				if _, _, err := b.Put(grant.Grant{Kind: grant.Deny, Target: name}, 0, time.Now()); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
	},
	"reload": func(ctx context.Context, k *keeper, p *policy.Policy) error {
		return k.change(ctx, func() (<-chan wire.Message, error) { return k.adoptFiles(ctx, k.book.files, p) })
	},
	"phase": func(ctx context.Context, k *keeper, _ *policy.Policy) error { return k.bring(ctx, policy.Sealed) },
}

// TestEndsFirst: whatever changes, what it closes leaves the kernel and the guard is told, before anything is done that
// takes longer for what the agent has made. Until then, a full book makes no difference to what the kernel is asked.
func TestEndsFirst(t *testing.T) {
	without := parsePolicy(t, "domains: ['*.wild.test:443', 'stays.test:443 direct']\nlimits: {leases: 60000}\n")
	for name, change := range ways {
		t.Run(name, func(t *testing.T) {
			var first []string
			for _, n := range []int{3, 3000} {
				k, r := changing(t, n, manyNames)
				if err := change(t.Context(), k, without); err != nil {
					t.Fatal(err)
				}
				did := r.did[:slices.Index(r.did, "apply 0")+1]
				if len(did) != 2 || did[0] == "drop 0" {
					t.Fatalf("%d names: %v", n, r.did)
				}
				if name == "phase" { // all that was leased closes
					continue
				}
				if did[0] != "drop 1" { // shared.test's address is another's as well
					t.Errorf("%d names: %v", n, r.did)
				}
				if first = append(first, fmt.Sprint(did)); first[0] != fmt.Sprint(did) {
					t.Errorf("%d names: %v, and with fewer %s", n, did, first[0])
				}
				if i := slices.IndexFunc(r.did, func(s string) bool { return s[:5] == "lease" }); i >= 0 {
					t.Errorf("leased anew: %v", r.did)
				}
			}
		})
	}
}

// TestEndsFirstSaved: what is denied for good is closed before the file is waited for, which another keeper may have, and
// is open again where it can't be saved.
func TestEndsFirstSaved(t *testing.T) {
	mustrun.Root(t) // files of other owners are refused
	for _, saved := range []bool{true, false} {
		k, r := changing(t, 3, manyNames)
		dir := t.TempDir()
		k.book.config.SavedFile = filepath.Join(dir, "saved", "allowlist.txt")
		file, err := policy.OpenSaved(k.book.config.SavedFile)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			done <- k.changeGrants(t.Context(), func(b *grant.Book) ([]audit.Event, error) {
				_, _, err := b.Put(grant.Grant{Kind: grant.Deny, Target: "gone.test", Saved: true}, 0, time.Now())
				return nil, err
			})
		}()
		<-r.told
		gone := firewall.Element{Addr: addrs("45.30.0.1")[0], Proto: 6, Port: 22}
		r.mu.Lock()
		if r.held[gone] {
			t.Error("it is open while the file is another's")
		}
		r.mu.Unlock()
		if saved {
			file.Close()
		}
		if err := <-done; (err == nil) != saved {
			t.Error(err)
		}
		if d := k.book.policy().Decide("gone.test", policy.Port{Proto: policy.TCP, Number: 22}); d.Allowed == saved {
			t.Errorf("saved: %v, and %+v", saved, d)
		}
		if s, _ := os.ReadFile(k.book.config.SavedFile); strings.Contains(string(s), "gone.test") != saved {
			t.Errorf("saved: %v, and the file has %q", saved, s)
		}
		if g := k.book.now().grants.List; len(g) == 1 != saved {
			t.Errorf("saved: %v, and the grants are %+v", saved, g)
		}
		file.Close()
	}
}

// TestEndsFirstSamePlan: the kernel is not asked for rules that it was given already. After an error it is.
func TestEndsFirstSamePlan(t *testing.T) {
	k, r := changing(t, 3, manyNames)
	deny := func(name string) error {
		return k.changeGrants(t.Context(), func(b *grant.Book) ([]audit.Event, error) {
			_, _, err := b.Put(grant.Grant{Kind: grant.Deny, Target: name}, 0, time.Now())
			return nil, err
		})
	}
	applied := func() (n int) {
		for _, did := range r.did {
			if did == "apply 0" {
				n++
			}
		}
		return n
	}
	for i, step := range []struct {
		target string
		refuse error
		want   int
	}{{"gone.test", nil, 1}, {"shared.test", nil, 1}, {"45.1.1.1", errors.New("no room"), 2}, {"stays.test", nil, 3}, {"moves.test", nil, 3}} {
		r.refuse = step.refuse
		if err := deny(step.target); (err != nil) != (step.refuse != nil) || applied() != step.want {
			t.Fatalf("step %d: %v, and rules were given %d times, want %d: %v", i, err, applied(), step.want, r.did)
		}
	}
}

// TestLeasesInTurn: a list that takes long to write is not written each time that a lease changes.
func TestLeasesInTurn(t *testing.T) {
	k, _ := changing(t, 3, manyNames)
	k.leasesNext = time.Now().Add(time.Hour)
	if n := k.publishLeasesInTurn(0); n != 0 {
		t.Errorf("written before its turn, up to %d", n)
	}
	k.leasesNext = time.Time{}
	if n := k.publishLeasesInTurn(0); n == 0 || k.leasesNext.IsZero() {
		t.Errorf("not written in its turn: %d, next %v", n, k.leasesNext)
	}
}

// TestEndsFirstMoves: what somebody else goes out for from now on is leased to that one, and nothing else is leased anew.
func TestEndsFirstMoves(t *testing.T) {
	k, r := changing(t, 3000, manyNames)
	if err := ways["reload"](t.Context(), k, parsePolicy(t, "domains: ['*.wild.test:443', 'stays.test:443', shared.test:443]\nlimits: {leases: 60000}\n")); err != nil {
		t.Fatal(err)
	}
	// Two names have it.
	if !slices.Contains(r.did, "lease 2") || !r.held[firewall.Element{Addr: addrs("45.30.0.2")[0], Proto: 6, Port: 443, For: firewall.Gated}] {
		t.Errorf("did %v", r.did)
	}
}

// TestEndsFirstRefused: if the kernel does not take the rules, the old policy counts for each lease.
func TestEndsFirstRefused(t *testing.T) {
	k, r := changing(t, 30, manyNames)
	r.refuse = errors.New("no room")
	close(r.told) // it is not
	if ways["reload"](t.Context(), k, parsePolicy(t, "domains: ['stays.test:443']\n")) == nil {
		t.Fatal("the kernel has refused, and that is no error")
	}
	for e := range r.held {
		if !k.leases.books.Holds(e) {
			t.Errorf("%v is open, and not in the book", e)
		}
	}
	for _, l := range k.leases.books.Leases() {
		if !r.held[l.Element] {
			t.Errorf("%v is in the book, and not open", l.Element)
		}
	}
	if left, _ := k.leases.books.Of(firewall.Agent).LeasedTo("n7.wild.test", firewall.Element{Addr: addrs("45.60.0.7")[0], Proto: 6, Port: 443}); left == 0 {
		t.Error("a name of the old policy lost its lease")
	}
}

// TestEndsBesideRenewal: a denial that comes while the leases of a full book are renewed, or given to the kernel anew,
// waits for a part of them alone, and what it closes is given by none of the others.
func TestEndsBesideRenewal(t *testing.T) {
	for what, again := range map[string]func(*leases, context.Context){
		"renewal": (*leases).renew,
		"repair": func(l *leases, ctx context.Context) {
			all := l.books.Leases()
			slices.SortFunc(all, func(a, b firewall.Lease) int { return b.Addr.Compare(a.Addr) }) // gone.test's comes last
			if err := l.giveInParts(ctx, all); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			const n = 5 * atOnce
			k, r := changing(t, 3, manyNames)
			for i := range n {
				addr := addrs(netip.AddrFrom4([4]byte{45, 61, byte(i >> 8), byte(i)}).String())
				k.leases.books.Of(firewall.Agent).Lease(fmt.Sprintf("m%d.wild.test", i), addr, 30*time.Second) // they end soon
				r.held[firewall.Element{Addr: addr[0], Proto: 6, Port: 443, For: firewall.Gated}] = true
			}
			var denied sync.WaitGroup
			gone := firewall.Element{Addr: addrs("45.30.0.1")[0], Proto: 6, Port: 22}
			parts := 0
			r.leases = func(ls []firewall.Lease) {
				if parts++; len(ls) > atOnce || parts > 1 && slices.ContainsFunc(ls, func(l firewall.Lease) bool { return l.Element == gone }) {
					t.Errorf("part %d is of %d leases, or has what was denied", parts, len(ls))
				}
				if parts > 1 {
					return
				}
				denied.Go(func() {
					if err := ways["denial"](t.Context(), k, nil); err != nil {
						t.Error(err)
					}
				})
				for k.leases.moving.TryRLock() { // until it waits
					k.leases.moving.RUnlock()
					time.Sleep(time.Millisecond)
				}
			}
			again(k.leases, t.Context())
			denied.Wait()
			first := slices.IndexFunc(r.did, func(s string) bool { return s[:4] == "drop" })
			if given := slices.IndexFunc(r.did[max(first, 0):], func(s string) bool { return s[:5] == "lease" }); first < 0 || first > 1 || given < 0 {
				t.Errorf("the denial came behind what could wait: %v", r.did)
			}
			if r.held[gone] {
				t.Errorf("%v is open again", gone)
			}
		})
	}
}
