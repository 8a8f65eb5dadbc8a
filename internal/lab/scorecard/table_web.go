package scorecard

import "strings"

func webAttacks() []Attack {
	return []Attack{
		{ID: "E42", Title: "another host inside the TLS of an allowed one (fronting)",
			Try:   []string{"http -insecure -h1 -addr {ok4}:443 -sni {ok} -host {bad} https://{ok}/"},
			Limit: "It can't be seen without breaking TLS. Don't allow names on providers that serve strangers at the same front.",
			Tests: []string{"TestFrontingIsAKnownLimit"}},
		{ID: "E43", Title: "an allowed host inside the TLS of another",
			Try:   []string{"http -insecure -h1 -addr {ok4}:443 -sni {other} -host {ok} https://{ok}/", "http -insecure -addr {bad4}:443 -sni {ok} https://{ok}/"},
			Tests: []string{"TestAuditTellsNameFromAddress"}},
		{ID: "E44", Title: "no server name, or one that is none",
			Try:   []string{"http -insecure -host {other} https://{ok4}/", "http -insecure -addr {ok4}:443 -sni {ok4} -host {other} https://{ok}/"},
			Tests: []string{"TestServerNameMustBeOneAndAllowed"}},
		{ID: "E45", Title: "a server name in pieces",
			Try:   []string{"tcp -piece 1 -timeout 5s -hex {hello} {ok4}:443", "tcp -piece 37 -hex {hello} {ok4}:443"},
			Tests: []string{"TestSplitHelloIsReadWhole"}},
		{ID: "E46", Title: "encrypted server names",
			Try:   []string{"tcp -hex {ech} {ok4}:443", "tcp -hex {ech} [{ok6}]:443"},
			Tests: []string{"TestEncryptedHelloJudgedByOuterName"}},
		{ID: "E47", Title: "other protocols on 443 and 80",
			Try: []string{`tcp -esc 'SSH-2.0-{bad}\r\n' {ok4}:443`, `tcp -esc 'GET / HTTP/1.1\r\nHost: {bad}\r\n\r\n' {ok4}:443`, `tcp -esc 'SSH-2.0-{bad}\r\n' {ok4}:80`,
				"tcp -hex {hello} {ok4}:80"},
			Tests: []string{"TestOtherProtocolsRefused"}},
		{ID: "E48", Title: "CONNECT",
			Try: []string{`tcp -esc 'CONNECT {bad}:443 HTTP/1.1\r\nHost: {ok}\r\n\r\n' {ok4}:80`, `tcp -esc 'CONNECT {ok}@{bad}:25 HTTP/1.1\r\nHost: {ok}\r\n\r\n' {ok4}:80`,
				`tcp -esc 'CONNECT {ok}:443 HTTP/1.1\r\nHost: {ok}:443\r\n\r\nto {bad}' {ok4}:80`},
			Tests: []string{"TestConnectRefused"}},
		{ID: "E49", Title: "two hosts in one request",
			Try: []string{`tcp -esc 'GET http://{bad}/ HTTP/1.1\r\nHost: {ok}\r\n\r\n' {ok4}:80`, `tcp -esc 'GET http://{ok}/ HTTP/1.1\r\nHost: {bad}\r\n\r\n' {ok4}:80`,
				`tcp -esc 'GET / HTTP/1.1\r\nHost: {ok}\r\nHost: {bad}\r\n\r\n' {ok4}:80`, `tcp -esc 'GET / HTTP/1.1\r\nHost: {ok}\r\n {bad}\r\n\r\n' {ok4}:80`},
			Tests: []string{"TestTwoHostsRefused"}},
		{ID: "E50", Title: "a request hidden in another",
			Try: []string{
				`tcp -esc 'POST / HTTP/1.1\r\nHost: {ok}\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: {bad}\r\n\r\n' {ok4}:80`,
				`tcp -esc 'GET / HTTP/1.1\r\nHost: {ok}\r\n\r\nGET / HTTP/1.1\r\nHost: {bad}\r\n\r\n' {ok4}:80`,
				`tcp -esc 'GET / HTTP/1.1\nHost: {ok}\nX: y\n\nGET / HTTP/1.1\r\nHost: {bad}\r\n\r\n' {ok4}:80`},
			Tests: []string{"TestSmuggledRequestRefused"}},
		{ID: "E51", Title: "several hosts on one connection of HTTP/2",
			Try:   []string{"http -insecure -addr {ok4}:443 -sni {ok} -host {bad} https://{ok}/"},
			Limit: "As with fronting, it is inside of TLS.",
			Tests: []string{"TestCoalescingIsAKnownLimit"}},
		{ID: "E52", Title: "upgrades to other protocols on 80",
			Try: []string{`tcp -esc 'GET / HTTP/1.1\r\nHost: {ok}\r\nConnection: Upgrade\r\nUpgrade: {bad}\r\n\r\n' {ok4}:80`,
				`tcp -esc 'GET / HTTP/1.1\r\nHost: {ok}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\nPRI * {bad}' {ok4}:80`},
			Tests: []string{"TestUpgradeOnlyWhereAllowed"}},
		{ID: "E53", Title: "DNS over HTTPS and TLS",
			Try: []string{"tcp 1.1.1.1:443", "tcp 8.8.8.8:853", "tcp [2606:4700:4700::1111]:443", "http -insecure https://dns.{bad}/dns-query",
				"http -insecure -addr 1.1.1.1:443 -sni {ok} https://{ok}/dns-query"},
			Watch: []string{"tcp/1.1.1.1/443", "tcp/8.8.8.8/853", "tcp/2606:4700:4700::1111/443"},
			Tests: []string{"TestDoHRefused"}},
		{ID: "E54", Title: "an upload to an allowed service",
			Try: []string{"http -insecure -method POST -size 1000000 https://{ok}/e54-upload"},
			Judge: func(e *Evidence) []string {
				for _, r := range e.Setting.Lab.Web.Requests(e.Setting.Allowed) {
					if strings.Contains(r.URI, "e54-upload") {
						return []string{"a megabyte to the allowed service"}
					}
				}
				return nil
			},
			Limit: "What an allowed service does with data is out of sight. Allow no service where strangers can read what the agent may write.",
			Tests: []string{"TestUploadToAllowedIsAKnownLimit"}},
		{ID: "E55", Title: "redirects to other hosts",
			Try:   []string{"http -follow -insecure https://{sub}/", "http -follow http://{sub}/"},
			Serve: elsewhere,
			Tests: []string{"TestRedirectIsJudgedAnew"}},
	}
}
