package scorecard

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// foundAttacks are those that were found later, in the order of their numbers. Of
// SECURITY.md's, only the ones that can be tried from inside of any container: the
// others are Elsewhere.
func foundAttacks() []Attack {
	return slices.Concat(foundFirst(), foundByReview())
}

func foundFirst() []Attack {
	return []Attack{
		{ID: "X01", Title: "flows made beforehand, in place of the engine's DNS",
			Try: []string{"@needs {engine-dns}", "spawn x01 forge -for 6s {engine-dns}:53 {bad4}", "@sleep 500ms", "loop -n 8 -timeout 1s -name n{n}.{sub} :443",
				"tcp -timeout 500ms {bad4}:443", "collect x01"},
			Answers: map[string]func(*Setting) lab.Answer{"*.{sub}": addresses("45.30.0.21")},
			Tests:   []string{"TestForgedAnswerUnheard", "TestForgedBeforeUpUnheard"}},
		{ID: "X02", Title: "all identifiers of a question", Judge: guessed,
			Try:   []string{"guess {bad4}:53"},
			Tests: []string{"TestGuessedIdentifiersEndTheEnginesWay"}},
		{ID: "X04", Title: "source routes", Judge: routed,
			Try:   []string{"udp -noreply -opt 0:4:hex{route} {bad4}:4433", "tcp -timeout 300ms -opt 0:4:hex{route} {bad4}:443"},
			Tests: []string{"TestSourceRouteOpensNothing"}},
		{ID: "X07", Title: "HTTP/2 without TLS",
			Try:   []string{`tcp -esc 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{bad}' {ok4}:80`, `tcp -esc 'PRI * HTTP/2.0\r\nHost: {ok}\r\n\r\nSM\r\n\r\n{bad}' {ok4}:80`},
			Tests: []string{"TestHTTP2WithoutTLSRefused"}},
		{ID: "X11", Title: "sockets from a user namespace", Won: true,
			Try:   []string{"unshare user,mount unix {control}"},
			Tests: []string{"TestNamespaceRootIsTheAgentToSockets"}},
		{ID: "X19", Title: "a byte of urgent data in the name",
			Try: []string{`urgent -at 22 -timeout 2s -esc 'GET / HTTP/1.1\r\nHost: X{bad}\r\nConnection: close\r\n\r\n' {ok4}:80`,
				`urgent -at 22 -timeout 2s -esc 'GET / HTTP/1.1\r\nHost: X{other}\r\nConnection: close\r\n\r\n' {ok4}:80`},
			Tests: []string{"TestUrgentByteHidesNoName"}},
		{ID: "X20", Title: "data in the first packet",
			Try: []string{"fastopen -timeout 1s -send {bad} {bad4}:443", "fastopen -timeout 1s -send {bad} {ok4}:8443",
				`fastopen -timeout 1s -esc 'GET / HTTP/1.1\r\nHost: {bad}\r\n\r\n' {ok4}:80`},
			Tests: []string{"TestFastOpenCarriesNothing"}},
		{ID: "X25", Title: "links from a network of one's own", Own: true, Judge: linked,
			Try:   []string{"unshare user,net link {init}", "unshare net link {init}", "link {init}"},
			Tests: []string{"TestLinksAcrossRefused"}},
		{ID: "X28", Title: "root by PATH: a writable directory comes first", Won: true,
			Try:   []string{"@fresh +-e +PATH={workspace}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin do run true"},
			Tests: []string{"TestPathWritableByOthersRefused", "TestContainersPathIsJudged"}},
	}
}

func foundByReview() []Attack {
	return []Attack{
		{ID: "X30", Title: "a DNS server that is the container itself",
			Try: []string{`@fresh +--dns=127.0.0.53 do run sh -c 'poke usurp -for 6s 127.0.0.53:53 {bad4} >/dev/null 2>&1 & sleep 1; ` +
				`poke resolve -timeout 2s a.{sub}; poke tcp -timeout 1s {bad4}:443'`},
			Tests: []string{"TestAgentsOwnDNSServerUnasked"}},
		{ID: "X31", Title: "10,000 flows and no time left, while a policy shrinks",
			Try: []string{"dns {resolver}:53 {sub} A", "spawn x31 stream -insecure -addr 45.30.131.1:443 -sni {sub} https://{sub}/", "@flows 45.30.131.1", "flood -n 10000 -spread 10000 45.100.0.1:53",
				`spawn x31-spin run sh -c 'for i in 1 2 3 4; do timeout 4 sh -c "while :; do :; done" & done; wait'`,
				"@reload {ok}", "@sleep 1s", "@forget", "@flows 45.30.131.1 500ms", "@reload"},
			Answers: map[string]func(*Setting) lab.Answer{"{sub}": addresses("45.30.131.1")},
			Serve:   endless, Judge: livedOn("45.30.131.1"),
			Tests: []string{"TestRevocationIsQuickAmongManyFlows", "TestRevocationComesWithoutProcessorTime"}},
		{ID: "X33", Title: "the budget of a wildcard, again from each new guard", Judge: overBudget,
			Try: []string{"dns -n 400 -c 16 -timeout 1s {resolver}:53 a{n}.{sub} A", "@guard", "@sleep 3s",
				"dns -n 400 -c 16 -timeout 1s {resolver}:53 b{n}.{sub} A"},
			Answers: map[string]func(*Setting) lab.Answer{"*.{sub}": addresses("45.30.0.21")},
			Tests:   []string{"TestBudgetHoldsAcrossGuards"}},
		{ID: "X36", Title: "connections that lead nowhere, to keep an address", Why: "takes minutes",
			Tests: []string{"TestLeaseLastsForItsPortAlone"}},
		{ID: "X37", Title: "flows from every port to the DNS server", Judge: primed,
			Try:   []string{"prime {resolver}:53", "-patient resolve {ok}"},
			Tests: []string{"TestPrimedPortsLeadNowhere", "TestPrimedUpstreamLeadsNowhere"}},
		{ID: "X39", Title: "which of a wildcard's known names is asked for",
			Limit: "Four such questions pass for each new name. Prefer exact names to wildcards."},
		{ID: "X40", Title: "a request in the extension of a chunk",
			Try: []string{`tcp -timeout 2s -esc 'POST / HTTP/1.1\r\nHost: {ok}\r\nTransfer-Encoding: chunked\r\n\r\n5;x http://{bad}/ HTTP/1.1\r\nhello\r\n0\r\n\r\n' {ok4}:80`,
				`tcp -timeout 2s -esc 'POST / HTTP/1.1\r\nHost: {ok}\r\nTransfer-Encoding: chunked\r\n\r\n5;x=\"\thttp://{bad}/\tHTTP/1.1\"\r\nhello\r\n0\r\n\r\n' {ok4}:80`},
			Tests: []string{"TestChunkExtensionSmugglesNothing"}},
		{ID: "X41", Title: "a request behind a body",
			Try: []string{`tcp -all -timeout 2s -esc 'POST / HTTP/1.1\r\nHost: {ok}\r\nContent-Length: 4\r\n\r\nbodyGET / HTTP/1.1\r\nHost: {ok}\r\nX-Next: {bad}\r\n\r\n' {ok4}:80`,
				`tcp -all -timeout 2s -esc 'DELETE / HTTP/1.1\r\nHost: {ok}\r\nContent-Length: 4\r\n\r\nbodyGET /{bad} HTTP/1.1\r\nHost: {ok}\r\n\r\n' {ok4}:80`},
			Tests: []string{"TestIgnoredBodySmugglesNothing"}},
		{ID: "X43", Title: "sockets without an owner, and addresses of others as their source", Judge: foreignSource,
			Try: []string{"connect -timeout 500ms inet stream 256 {bad4}:443", "tcp -timeout 500ms -opt 0:19:1 -source {bad4}:40043 {ok4}:443",
				"udp -noreply -opt 0:15:1 -source {bad4}:40043 {ok4}:443", "tcp -timeout 500ms -opt 41:78:1 -source [{bad6}]:40043 [{ok6}]:443",
				"udp -noreply -opt 41:78:1 -source [{bad6}]:40043 [{ok6}]:443"}, // 0:15, 0:19 and 41:78 are IP_FREEBIND, IP_TRANSPARENT, IPV6_FREEBIND
			Tests: []string{"TestKernelForgedSource", "TestSocketFamiliesRefused"}},
		{ID: "X46", Title: "to outlive PID 1 where memory is short", Own: true, Won: true,
			Try:       []string{`run sh -c ': {agent-init}; test "$(cat /proc/self/oom_score_adj)" -le "$(cat /proc/1/oom_score_adj)"'`},
			Elsewhere: "It holds for what agent-init starts.",
			Tests:     []string{"TestOutOfMemoryTakesTheAgent", "TestOutOfMemoryOrderInEachMode"}},
		{ID: "X49", Title: "what the container's standard output has", Own: true, Won: true,
			Try:   []string{`run sh -c ': {agent-init}; exec 3</proc/$PPID/fd/1'`},
			Tests: []string{"TestOutputCantBeRead"}},
		{ID: "X51", Title: "the machine's processes",
			Try:   []string{"@fresh +--pid=host do tcp -timeout 1s {bad4}:443"},
			Tests: []string{"TestForeignProcesses"}},
		{ID: "X57", Title: "another site of a provider, in an Encrypted ClientHello", Judge: hidden,
			Try:   []string{"tcp -timeout 2s -hex {ech-ok} {ok4}:443"},
			Limit: "It passes by the name outside. A policy can refuse all of them: `tls: {ech: refuse}`.",
			Tests: []string{"TestEncryptedHelloRefusedByPolicy"}},
	}
}

// guessed counts the datagrams of a sweep that got out, of which each went to an
// address of its own.
func guessed(e *Evidence) []string {
	n := 0
	for _, p := range e.Packets {
		if a := p.Dst; p.Proto == unix.IPPROTO_UDP && p.DstPort == 53 && a.Is4() && a.As4()[0] == 45 && a.As4()[1] == 41 {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d datagrams to DNS servers of the agent's choice", n)}
}

// routed finds packets that have the attack's address in their options.
func routed(e *Evidence) []string {
	const ethernet, fixed = 14, 20
	for _, p := range e.Packets {
		if len(p.Raw) < ethernet+fixed || p.EtherType != unix.ETH_P_IP {
			continue
		}
		header := min(int(p.Raw[ethernet]&15)*4, len(p.Raw)-ethernet)
		if header > fixed && bytes.Contains(p.Raw[ethernet+fixed:ethernet+header], e.Attack.bad().v4.AsSlice()) {
			return []string{"a packet that is to be sent on to an address that is not allowed"}
		}
	}
	return nil
}

// linked finds links that reach into the container's network.
func linked(e *Evidence) []string {
	var out []string
	for _, s := range e.Said {
		d := s.Detail
		if inner, is := d["result"].(map[string]any); is {
			d, _ = inner["detail"].(map[string]any)
		}
		if made, _ := d["made"].([]any); len(made) > 0 {
			out = append(out, fmt.Sprintf("links into the container's network: %v", made))
		}
	}
	return out
}

// overBudget counts the names that were asked for below a wildcard, of which the
// policy's default allows 120 at once and as many a minute.
func overBudget(e *Evidence) []string {
	names := map[string]bool{}
	for _, q := range e.Queries {
		if sub := e.values["sub"]; sub != "" && below(sub, q.Name) {
			names[q.Name] = true
		}
	}
	if len(names) <= 240 {
		return nil
	}
	return []string{fmt.Sprintf("%d new names below a wildcard", len(names))}
}

// primed counts what of a sweep over all source ports came to the DNS server, and
// asks whether its clients are still answered.
func primed(e *Evidence) []string {
	var out []string
	n := 0
	for _, p := range e.Packets {
		if p.Proto == unix.IPPROTO_UDP && p.DstPort == 53 && bytes.Contains(p.Payload, []byte("from the agent")) {
			n++
		}
	}
	if n > 0 {
		out = append(out, fmt.Sprintf("%d datagrams of the agent's at a DNS server", n))
	}
	for _, s := range e.Said {
		if s.Op == "resolve" && !s.OK && e.Setting.Resolves {
			e.lack("a question that was not answered: %s", s.Err)
		}
	}
	return out
}

// foreignSource finds packets from an address that is another's, but for resets.
func foreignSource(e *Evidence) []string {
	const reset = 4
	bad := e.Attack.bad()
	for _, p := range e.Packets {
		if (p.Src == bad.v4 || p.Src == bad.v6) && (p.Proto != unix.IPPROTO_TCP || p.TCPFlags&reset == 0) {
			return []string{"a packet from an address of somebody else's"}
		}
	}
	return nil
}

// hidden finds hellos with an extension for an encrypted one (RFC 9849).
func hidden(e *Evidence) []string {
	ok4, ok6 := e.Setting.allowed()
	for _, c := range e.Conns {
		if to := c.Dst.Addr(); slices.Contains([]netip.Addr{ok4, ok6}, to) && bytes.Contains(c.Received, []byte{0xfe, 0x0d}) {
			return []string{"a hello with another one inside"}
		}
	}
	return nil
}
