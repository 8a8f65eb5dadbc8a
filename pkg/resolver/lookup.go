package resolver

import (
	"cmp"
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
	question
	find audit.Finder
	due  time.Time // when the client is about to give up

	by   *audit.Process // nil: not known
	said *audit.Event   // the one event that tells what came of it
}

// line is an event about the name that is asked for.
func (a *asker) line(v audit.Verdict, rule *policy.Rule, reason string) audit.Event {
	return a.mark(line(v, a.name, rule, reason)).By(a.by)
}

// ask has deliver called with the answer, and joins a lookup that is under way. An answer that is there at once is
// returned instead. It returns false if there is no place for one more. Our own questions are not limited.
func (s *Server) ask(who *asker, deliver func(*answer)) (*answer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lookups[who.question]; l != nil {
		if !who.own && len(l.waiters) >= s.limits.waiters {
			return nil, false
		}
		l.waiters = append(l.waiters, deliver)
		who.count.Allowed.Add(1)
		return nil, true
	}
	now := time.Now()
	p := s.config.Policy()
	// It may have been answered since the caller looked.
	if e := s.cache.get(who.question, p, now); e != nil {
		a := e.answer
		a.ttl = e.remaining(now)
		who.count.Allowed.Add(1)
		return &a, true
	}
	if s.finished || !who.own && len(s.lookups) >= s.limits.lookups {
		return nil, false
	}
	if !who.own {
		if a := s.limit(who, p, now); a != nil {
			return a, true
		}
	}
	who.count.Allowed.Add(1)
	s.lookups[who.question] = &lookup{waiters: []func(*answer){deliver}}
	s.work.Go(func() {
		a := s.resolve(s.life, who)
		s.mu.Lock()
		l := s.lookups[who.question]
		delete(s.lookups, who.question)
		lines := s.told(l, who.question, who.said)
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
func (s *Server) limit(who *asker, p *policy.Policy, now time.Time) *answer {
	set := &p.Settings
	if m := p.Lookup(who.name); m.Wildcard != nil {
		n := set.Limits.NewNamesPerWildcardPerMinute
		if !s.wildcards.Take(m.Wildcard.Name, who.name, n, now) {
			return s.overspent(who, m.Wildcard, n)
		}
	}
	if n := float64(set.DNS.QPS); !s.qps.Take(now, 1, n, 2*n) {
		s.config.Record(line(audit.Deny, who.name, nil, fmt.Sprintf("rate: more than %d questions a second for upstreams", set.DNS.QPS)))
		return &answer{rcode: dns.RcodeServerFailure, ede: dns.ExtendedErrorCodeNotReady, text: "rate: too many new questions"}
	}
	return nil
}

// overspent is the refusal of a name below a wildcard of which too much was asked.
func (s *Server) overspent(who *asker, wildcard *policy.Rule, perMinute int) *answer {
	below := wildcard.Target()
	text := fmt.Sprintf("rate: more than %d new names a minute below %s, or %d questions for others", perMinute, below, budget.AgainPerNew*perMinute)
	s.config.Record(who.mark(line(audit.Deny, below, wildcard, text+", last "+who.name)))
	return s.refusal(who.client, text)
}

// spend is limit for a name below a wildcard, by who counts for longer than this process lives.
func (s *Server) spend(ctx context.Context, who *asker) *answer {
	p := s.config.Policy()
	m := p.Lookup(who.name)
	if s.config.Spend == nil || m.Wildcard == nil {
		return nil
	}
	ok, err := s.config.Spend(ctx, who.name)
	switch {
	case err != nil:
		return s.failure(who, m.Rule, dns.ExtendedErrorCodeOther, "nobody says whether it may be asked for", err)
	case !ok:
		return s.overspent(who, m.Wildcard, p.Settings.Limits.NewNamesPerWildcardPerMinute)
	}
	return nil
}

// resolve asks upstream, admits what was found, and caches it.
func (s *Server) resolve(ctx context.Context, who *asker) *answer {
	who.due = time.Now().Add(s.patience)
	asking, cancel := context.WithDeadline(ctx, who.due)
	defer cancel()
	if a := s.spend(asking, who); a != nil {
		return a
	}
	found := make(chan *audit.Process, 1)
	go func() { found <- who.process(who.find) }()
	var err error
	m := s.cache.former(who.question, time.Now())
	if m == nil {
		m, err = s.find(asking, who.question)
	}
	who.by = <-found
	// The policy may have changed meanwhile. What is in force now decides.
	p := s.config.Policy()
	match := p.Lookup(who.name)
	var a *answer
	switch {
	case !match.Allowed && !s.config.Monitor:
		return s.deny(p, who.client, who.name, match.Rule, "not in the allowlist any more")
	case ctx.Err() != nil:
		return &answer{rcode: dns.RcodeServerFailure, ede: dns.ExtendedErrorCodeNotReady, text: "the resolver is stopping"}
	case err != nil:
		s.stats.Failed.Add(1)
		a = s.failure(who, match.Rule, dns.ExtendedErrorCodeNetworkError, "no upstream answered", err)
	case !match.Allowed:
		a = s.observe(p, match, m, who)
	default:
		a = s.admit(ctx, p, match, m, who)
		s.open(asking, p, who.name, a)
	}
	now := time.Now()
	e := &entry{answer: *a, expires: now.Add(time.Duration(a.ttl) * time.Second)}
	if err == nil && a.rcode != dns.RcodeServerFailure {
		e.keepReply(m)
	}
	s.cache.put(who.question, e, p, now)
	return a
}

// open opens the ports of the short names that an answer is for as well, for as long as it lasts: the program asks no more
// when it has found the full one.
func (s *Server) open(ctx context.Context, p *policy.Policy, full string, a *answer) {
	if len(a.addrs) == 0 {
		return
	}
	for _, name := range p.Meant(full) {
		if _, ttl, err := s.Lookup(ctx, name, time.Minute); err == nil {
			a.ttl = min(a.ttl, seconds(ttl))
		}
	}
}

// failure is SERVFAIL, to be kept for a moment, so that a client that retries in a loop does not reach upstream.
func (s *Server) failure(who *asker, rule *policy.Rule, ede uint16, what string, err error) *answer {
	const most = 160 // bytes, for a client
	why := strings.ReplaceAll(err.Error(), "\n", "; ")
	who.said = new(who.line(audit.Fault, rule, what+": "+why))
	s.config.Log.Info("name not resolved", "name", who.name, "cause", what, "err", err)
	if len(why) > most {
		why = why[:most-3] + "..."
	}
	return &answer{rcode: dns.RcodeServerFailure, ede: ede, text: what + ": " + why, ttl: seconds(failTTL)}
}

// maxConsider is how many addresses of one reply are looked at.
const maxConsider = 256

// admit makes the answer from an upstream's reply: what the policy admits, and then the firewall.
func (s *Server) admit(ctx context.Context, p *policy.Policy, match policy.Match, m *dns.Msg, who *asker) *answer {
	f := follow(m, who.question, func(target string) bool {
		t := p.Lookup(target)
		if t.Allowed || t.Rule == nil || s.config.Monitor {
			return true
		}
		s.config.Record(who.line(audit.Deny, t.Rule, "an alias of "+target+", which a rule denies"))
		return false
	})
	if len(f.addrs) == 0 {
		return s.absent(match, f, who)
	}
	most := max(1, p.Settings.Limits.AddrsPerName)
	addrs := f.addrs
	if len(addrs) > most {
		rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
		addrs = addrs[:min(len(addrs), maxConsider)]
	}
	addrs, others, text := s.strip(p, match, addrs, who)
	extra := s.let(match.Rule, "an address that the name may not have", others, who)
	ttl := f.lease(p)
	switch {
	case len(addrs) == 0 && len(extra) > 0:
		return &answer{addrs: extra, ttl: seconds(ttl)}
	case len(addrs) == 0:
		return &answer{ede: dns.ExtendedErrorCodeBlocked, text: text, ttl: seconds(denyTTL)}
	}
	addrs = addrs[:min(len(addrs), most)]
	due := time.Now().Add(s.admitWait)
	if due.Before(who.due) {
		due = who.due
	}
	ctx, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	open, err := s.config.Admit(ctx, who.name, slices.Clone(addrs), ttl+leaseGrace)
	asked := len(addrs)
	addrs = slices.DeleteFunc(addrs, func(a netip.Addr) bool { return !slices.Contains(open, a) })
	if err != nil || len(addrs) == 0 {
		return s.failure(who, match.Rule, dns.ExtendedErrorCodeOther, "the firewall did not admit the answer",
			cmp.Or(err, errors.New("none of its addresses was let in")))
	}
	reason := fmt.Sprintf("%s, %d of %d addresses for %d s", dns.Type(who.qtype), len(addrs), asked, seconds(ttl))
	if len(f.chain) > 0 {
		reason += ", by way of " + strings.Join(f.chain, ", ")
	}
	e := who.line(audit.Allow, match.Rule, reason)
	e.IP = addrs[0].String()
	who.said = &e
	return &answer{addrs: append(addrs, extra...), ttl: seconds(ttl)}
}

// absent is the answer for a name without addresses of the type.
func (s *Server) absent(match policy.Match, f found, who *asker) *answer {
	a := &answer{ttl: max(1, seconds(f.ttl))}
	reason := fmt.Sprintf("%s, no address", dns.Type(who.qtype))
	if !f.exists {
		a.rcode = dns.RcodeNameError
		reason = audit.NoSuchName
	}
	who.said = new(who.line(audit.Allow, match.Rule, reason))
	return a
}

// shownStripped is how many stripped addresses of one answer get a line each.
const shownStripped = 8

// strip returns those of addrs that the policy admits for the name, those that monitor
// mode may let through, and why the rest is not, for the client.
func (s *Server) strip(p *policy.Policy, match policy.Match, addrs []netip.Addr, who *asker) (kept, others []netip.Addr, text string) {
	n := uint64(0)
	for _, a := range addrs {
		// No service is in the DNS under a wrapped address, only attempts are.
		if !a.Is4In6() && len(p.Admit(who.name, a)) > 0 {
			kept = append(kept, a)
			continue
		}
		if s.config.Monitor && letThrough(a) {
			others = append(others, a)
			continue
		}
		why := whyStripped(match, a)
		if text == "" {
			text = fmt.Sprintf("no answer is left: %s (%s)", why, a)
		}
		if n++; n <= shownStripped {
			e := who.line(audit.Deny, match.Rule, "stripped from the answer: "+why)
			e.IP = a.String()
			s.config.Record(e)
		}
	}
	if n > shownStripped {
		e := who.line(audit.Deny, match.Rule, "stripped from the answer: further addresses")
		e.Suppressed = n - shownStripped - 1
		s.config.Record(e)
	}
	s.stats.Stripped.Add(n)
	return kept, others, text
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

// In monitor mode what the policy does not allow is answered without a lease, since the firewall lets it out by itself.
// Each address is recorded with both verdicts, so that what is seen of it later can be told by its name.

// maxLet is how many addresses of one answer are let through.
const maxLet = 16

// observe answers for a name that the policy does not allow.
func (s *Server) observe(p *policy.Policy, match policy.Match, m *dns.Msg, who *asker) *answer {
	why := "not in the allowlist"
	if match.Rule != nil {
		why = "denied by a rule"
	}
	f := follow(m, who.question, func(string) bool { return true })
	a := &answer{ttl: seconds(f.lease(p))}
	if a.addrs = s.let(match.Rule, why, f.addrs, who); len(a.addrs) > 0 {
		return a
	}
	if !f.exists {
		a.rcode = dns.RcodeNameError
		why += "; there is no such name"
	}
	who.said = new(who.observed(match.Rule, why))
	return a
}

// observed is an event of what only monitor mode lets through.
func (a *asker) observed(rule *policy.Rule, why string) audit.Event {
	e := a.line(audit.Allow, rule, "monitor: "+why)
	e.Enforce = audit.Deny
	return e
}

// let records and returns those of addrs that monitor mode lets through.
func (s *Server) let(rule *policy.Rule, why string, addrs []netip.Addr, who *asker) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrs {
		if !letThrough(a) || len(out) == maxLet {
			continue
		}
		out = append(out, a)
		e := who.observed(rule, why)
		e.IP = a.String()
		s.config.Record(e)
	}
	return out
}

// letThrough says whether monitor mode may answer with a: never with loopback, metadata
// and the like, nor with an address inside of another.
func letThrough(a netip.Addr) bool { return !a.Is4In6() && policy.Classify(a) <= policy.Private }
