package resolver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/policy"
)

// lookup is one question on its way to an upstream, and who waits for it.
type lookup struct {
	waiters []func(*answer)
	beside  *audit.Event // of the lookup for the other type, which has ended, see told
}

// asker is who asks a question that goes upstream.
type asker struct {
	client
	find audit.Finder
	due  time.Time // when the client is about to give up

	by   *audit.Process // nil: not known
	said *audit.Event   // what came of it
}

// look finds out who asks, while the servers are asked. The result can be taken once.
func (a *asker) look() <-chan *audit.Process {
	found := make(chan *audit.Process, 1)
	if a.own {
		found <- nil
		return found
	}
	go func() { found <- a.process(a.find) }()
	return found
}

// say notes the one event that tells what came of the question.
func (a *asker) say(e audit.Event) {
	e = a.mark(e).By(a.by)
	a.said = &e
}

// ask has deliver called with the answer for key, which is made of name and
// qtype, and joins a lookup that is under way. An answer that is there at once
// is returned instead. It returns false if there is no place for one more.
// Questions of a client's are limited in rate; our own are not, and don't count.
func (s *Server) ask(key, name string, qtype uint16, who *asker, deliver func(*answer)) (*answer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lookups[key]; l != nil {
		if !who.own && len(l.waiters) >= s.config.Limits.Waiters {
			return nil, false
		}
		l.waiters = append(l.waiters, deliver)
		who.count.allowed.Add(1)
		return nil, true
	}
	now := time.Now()
	p := s.config.Policy()
	// It may have been answered since the caller looked.
	if e := s.cache.get([]byte(key), p, now); e != nil {
		a := *e.answer
		a.ttl = e.remaining(now)
		who.count.allowed.Add(1)
		return &a, true
	}
	if s.finished || !who.own && len(s.lookups) >= s.config.Limits.Lookups {
		return nil, false
	}
	if !who.own {
		if a := s.limit(who.client, p, name, now); a != nil {
			return a, true
		}
	}
	who.count.allowed.Add(1)
	s.lookups[key] = &lookup{waiters: []func(*answer){deliver}}
	s.work.Go(func() {
		a := s.resolve(s.life, key, name, qtype, who)
		s.mu.Lock()
		l := s.lookups[key]
		delete(s.lookups, key)
		lines := s.told(l, name, qtype, who.said)
		s.mu.Unlock()
		for _, e := range lines {
			s.config.Record(e)
		}
		for _, deliver := range l.waiters {
			deliver(a)
		}
	})
	return nil, true
}

// limit returns the refusal of a question that is one too many, or nil.
func (s *Server) limit(c client, p *policy.Policy, name string, now time.Time) *answer {
	set := p.Settings()
	if m := p.Lookup(name); m.Wildcard != nil {
		n := set.Limits.NewNamesPerWildcardPerMinute
		if !s.wildcards.Take(m.Wildcard.Name, name, n, now) {
			return s.overspent(c, m.Wildcard, name, n)
		}
	}
	if n := float64(set.DNS.QPS); !s.qps.Take(now, 1, n, 2*n) {
		s.config.Record(audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: name,
			Reason: fmt.Sprintf("rate: more than %d questions a second for upstreams", set.DNS.QPS)})
		return &answer{rcode: rcodeServFail, ede: dns.ExtendedErrorCodeNotReady, text: "rate: too many new questions"}
	}
	return nil
}

// overspent is the refusal of a name below a wildcard of which too much was asked.
func (s *Server) overspent(c client, wildcard *policy.Rule, name string, perMinute int) *answer {
	text := fmt.Sprintf("rate: more than %d new names a minute below %s, or %d questions for others", perMinute, wildcard.Target(), budget.AgainPerNew*perMinute)
	s.config.Record(c.mark(audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: wildcard.Target(),
		Rule: cite(wildcard), Reason: text + ", last " + name}))
	return s.refusal(c, text)
}

// spend asks whether a name below a wildcard may be asked for, of who counts for
// longer than this process lives. It returns the refusal, or nil.
func (s *Server) spend(ctx context.Context, name string, first *asker) *answer {
	p := s.config.Policy()
	m := p.Lookup(name)
	if s.config.Spend == nil || m.Wildcard == nil {
		return nil
	}
	ok, err := s.config.Spend(ctx, name)
	switch {
	case err != nil:
		return s.failure(first, name, m.Rule, dns.ExtendedErrorCodeOther, "nobody says whether it may be asked for", err)
	case !ok:
		return s.overspent(first.client, m.Wildcard, name, p.Settings().Limits.NewNamesPerWildcardPerMinute)
	}
	return nil
}

// resolve asks upstream, admits what was found, and caches it. First is who has
// asked first.
func (s *Server) resolve(ctx context.Context, key, name string, qtype uint16, first *asker) *answer {
	first.due = time.Now().Add(s.patience)
	asking, cancel := context.WithDeadline(ctx, first.due)
	defer cancel()
	if a := s.spend(asking, name, first); a != nil {
		return a
	}
	s.stats.asked.Add(1)
	found := first.look()
	begun := time.Now()
	m, err := s.exchange(asking, name, qtype)
	s.stats.askedNanos.Add(uint64(time.Since(begun)))
	first.by = <-found
	// The policy may have changed meanwhile. What is in force now decides.
	p := s.config.Policy()
	match := p.Lookup(name)
	var a *answer
	switch {
	case !match.Allowed && !s.config.Monitor:
		return s.deny(first.client, name, match.Rule, "not in the allowlist any more")
	case ctx.Err() != nil:
		return &answer{rcode: rcodeServFail, ede: dns.ExtendedErrorCodeNotReady, text: "the resolver is stopping"}
	case err != nil:
		s.stats.failed.Add(1)
		a = s.failure(first, name, match.Rule, dns.ExtendedErrorCodeNetworkError, "no upstream answered", err)
	case !match.Allowed:
		a = s.observe(p, match, name, qtype, m, first)
	default:
		a = s.admit(ctx, p, match, name, qtype, m, first)
	}
	now := time.Now()
	s.cache.put([]byte(key), &entry{answer: a, made: now, expires: now.Add(time.Duration(a.ttl) * time.Second)}, p, now)
	return a
}

// failure records that something broke and returns SERVFAIL, to be kept for a
// moment so that a client that retries in a loop does not reach upstream.
func (s *Server) failure(who *asker, name string, rule *policy.Rule, ede uint16, what string, err error) *answer {
	who.say(audit.Event{Kind: audit.DNS, Verdict: audit.Fault, Name: name, Rule: cite(rule),
		Reason: what + ": " + strings.ReplaceAll(err.Error(), "\n", "; ")})
	s.config.Log.Info("name not resolved", "name", name, "cause", what, "err", err)
	return &answer{rcode: rcodeServFail, ede: ede, text: what + ": " + brief(err), ttl: seconds(s.failTTL)}
}

// brief is an error in one short line, for a client.
func brief(err error) string {
	const most = 160
	s := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(s) > most {
		s = s[:most-3] + "..."
	}
	return s
}

// maxConsider is how many addresses of one reply are looked at.
const maxConsider = 256

// admit makes the answer from an upstream's reply: what the policy admits for
// the name, and then the firewall has let in.
func (s *Server) admit(ctx context.Context, p *policy.Policy, match policy.Match, name string, qtype uint16, m *dns.Msg, who *asker) *answer {
	f := follow(m, name, qtype, func(target string) bool {
		t := p.Lookup(target)
		if t.Allowed || t.Rule == nil || s.config.Monitor {
			return true
		}
		s.config.Record(who.mark(audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: name, Rule: cite(t.Rule),
			Reason: "an alias of " + target + ", which a rule denies"}).By(who.by))
		return false
	})
	if len(f.addrs) == 0 {
		return s.absent(match, name, qtype, f, who)
	}
	set := p.Settings()
	most := max(1, set.Limits.AddrsPerName)
	addrs := f.addrs
	if len(addrs) > most {
		rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
		addrs = addrs[:min(len(addrs), maxConsider)]
	}
	addrs, text := s.strip(p, match, name, addrs, who)
	var extra []netip.Addr
	if s.config.Monitor {
		extra = s.let(name, match.Rule, "an address that the name may not have", unadmitted(p, name, f.addrs), who)
	}
	if len(addrs) == 0 && len(extra) > 0 {
		return &answer{addrs: extra, ttl: seconds(max(time.Second, min(f.ttl, time.Duration(set.DNS.MaxTTL))))}
	}
	if len(addrs) == 0 {
		return &answer{ede: dns.ExtendedErrorCodeBlocked, text: text, ttl: seconds(s.denyTTL)}
	}
	addrs = addrs[:min(len(addrs), most)]
	ttl := max(time.Second, min(f.ttl, time.Duration(set.DNS.MaxTTL)))
	due := time.Now().Add(s.admitWait)
	if due.Before(who.due) {
		due = who.due
	}
	ctx, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	open, err := s.config.Admit(ctx, name, slices.Clone(addrs), ttl+s.grace)
	if err != nil {
		return s.failure(who, name, match.Rule, dns.ExtendedErrorCodeOther, "the firewall did not admit the answer", err)
	}
	asked := len(addrs)
	addrs = slices.DeleteFunc(addrs, func(a netip.Addr) bool { return !slices.Contains(open, a) })
	if len(addrs) == 0 {
		return s.failure(who, name, match.Rule, dns.ExtendedErrorCodeOther, "the firewall did not admit the answer",
			errors.New("none of its addresses was let in"))
	}
	reason := fmt.Sprintf("%s, %d of %d addresses for %d s", dns.Type(qtype), len(addrs), asked, seconds(ttl))
	if len(f.chain) > 0 {
		reason += ", by way of " + strings.Join(f.chain, ", ")
	}
	who.say(audit.Event{Kind: audit.DNS, Verdict: audit.Allow, Name: name, IP: addrs[0].String(),
		Rule: cite(match.Rule), Reason: reason})
	return &answer{addrs: append(addrs, extra...), ttl: seconds(ttl)}
}

// absent is the answer for a name without addresses of the type.
func (s *Server) absent(match policy.Match, name string, qtype uint16, f found, who *asker) *answer {
	a := &answer{ttl: max(1, seconds(f.ttl))}
	reason := fmt.Sprintf("%s, no address", dns.Type(qtype))
	if !f.exists {
		a.rcode = rcodeNXDomain
		reason = "the upstream says that there is no such name"
	}
	who.say(audit.Event{Kind: audit.DNS, Verdict: audit.Allow, Name: name, Rule: cite(match.Rule), Reason: reason})
	return a
}

// shownStripped is how many stripped addresses of one answer get a line each.
const shownStripped = 8

// strip returns those of addrs that the policy admits for name, and why the
// others are not, for the client.
func (s *Server) strip(p *policy.Policy, match policy.Match, name string, addrs []netip.Addr, who *asker) (kept []netip.Addr, text string) {
	n := uint64(0)
	record := func(e audit.Event) {
		e.Kind, e.Verdict, e.Name, e.Rule = audit.DNS, audit.Deny, name, cite(match.Rule)
		s.config.Record(who.mark(e).By(who.by))
	}
	for _, a := range addrs {
		// No service is in the DNS under a wrapped address, only attempts are.
		if !a.Is4In6() && len(p.Admit(name, a)) > 0 {
			kept = append(kept, a)
			continue
		}
		if s.config.Monitor && letThrough(a) {
			continue
		}
		why := whyStripped(match, a)
		if text == "" {
			text = fmt.Sprintf("no answer is left: %s (%s)", why, a)
		}
		if n++; n <= shownStripped {
			record(audit.Event{IP: a.String(), Reason: "stripped from the answer: " + why})
		}
	}
	if n > shownStripped {
		record(audit.Event{Reason: "stripped from the answer: further addresses", Suppressed: n - shownStripped - 1})
	}
	s.stats.stripped.Add(n)
	return kept, text
}

func whyStripped(match policy.Match, a netip.Addr) string {
	switch {
	case a.Is4In6():
		return "an IPv4 address inside an IPv6 one"
	case policy.Classify(a) == policy.Private && (match.Rule == nil || !match.Rule.Private):
		return "a private address: add the word private to the entry to allow it"
	case policy.Classify(a) == policy.Loopback:
		return "a loopback address is never the answer to a name"
	case policy.Classify(a) == policy.Never:
		return "a metadata or reserved address is never allowed"
	}
	return "an address that the policy denies"
}
