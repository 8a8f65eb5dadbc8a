package gate

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// answers has one answer for each request that begins in what was received.
func answers(got string) string {
	begins := regexp.MustCompile(`(?m)^(GET|POST|OPTIONS|CONNECT|PRI) `).FindAllString(got, -1)
	return strings.Repeat("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", len(begins))
}

// request is a head of these lines with an empty one behind it.
func request(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n\r\n" }

// smuggled is a request for a denied host.
var smuggled = request("GET /smuggled HTTP/1.1", "Host: shared.test")

// dropped is the reason for what nobody judges, since nothing may be there.
const dropped = "dropped"

// unpassed tries in both boxes to get something to the server of many.test at
// port 80. In the open box it must arrive; in the confined one the gate answers
// 403, or resets, and the server gets nothing that has "smuggled" in it: nothing
// at all, unless a first request may pass.
func (g *gated) unpassed(send, reason string, first bool) lab.Poke {
	g.Helper()
	a := g.next()
	got := g.Tap(a, 80, "", answers)
	args := g.bytes(rig.At(a, 80), []byte(send), "-all", "-timeout", "2s")
	g.Possible(g.open, g.bytes(rig.At(a, 80), []byte(send))...)
	if !strings.Contains(got.String(), "smuggled") {
		g.Errorf("proves nothing, arrived without confinement: %q", got)
	}
	got.Forget()
	g.Box.ForgetPackets()
	p := g.Poke(args...)
	if came := got.String(); strings.Contains(came, "smuggled") || !first && came != "" {
		g.Errorf("arrived: %q (%s)", came, p)
	}
	if !first {
		g.Traceless(rig.Toward(a.String()), []string{send})
	}
	answer, _ := p.Detail["received"].(string)
	requests := strings.Count(send, "POST ") + strings.Count(send, "Content-Length: 2\r\n\r\n{}")
	if strings.Count(answer, "HTTP/1.1 200 ") > requests || p.OK && !first && !strings.HasPrefix(answer, "HTTP/1.1 403 ") {
		g.Errorf("answered: %s", p)
	}
	if reason == dropped {
		return p
	}
	g.Audited("a refusal at "+a.String()+": "+reason, func(e rig.Event) bool {
		return (e.Kind == "http" || e.Kind == "connect") && e.Verdict == "deny" && e.IP == a.String() && strings.Contains(e.Reason, reason)
	})
	return p
}

// TestConnectRefused: no proxy is here.
func TestConnectRefused(t *testing.T) {
	g := gate(t)
	for _, authority := range []string{
		"many.test:443", "many.test:80", "many.test:25", "many.test:0", "many.test:65536", "many.test", ":443", "shared.test:443", "1.1.1.1:443",
		"[2a0f:30::10]:443", "[fe80::1%25eth0]:443", "user@many.test:443", "many.test@shared.test:443", "many.test:443:25",
		"many.test:443/..//shared.test", "http://shared.test/", "/", "*", "many.test:%34%34%33", "127.0.0.1:22",
	} {
		t.Run(authority, func(t *testing.T) {
			g.of(t).unpassed(request("CONNECT "+authority+" HTTP/1.1", "Host: many.test", "X: smuggled"), "connect is not allowed", false)
		})
	}
}

// TestTwoHostsRefused: a request has one host, or none that anybody may choose.
func TestTwoHostsRefused(t *testing.T) {
	g := gate(t)
	for _, c := range []struct {
		what, reason string
		lines        []string
	}{
		{"denied host", unlisted, []string{"GET / HTTP/1.1", "Host: shared.test"}},
		{"denied URI", "disagree", []string{"GET http://shared.test/ HTTP/1.1", "Host: many.test"}},
		{"denied host, allowed URI", "disagree", []string{"GET http://many.test/ HTTP/1.1", "Host: shared.test"}},
		{"both denied", unlisted, []string{"GET http://shared.test/ HTTP/1.1", "Host: shared.test"}},
		{"two hosts", "more than one host", []string{"GET / HTTP/1.1", "Host: many.test", "Host: shared.test"}},
		{"two hosts, the other order", "more than one host", []string{"GET / HTTP/1.1", "Host: shared.test", "Host: many.test"}},
		{"two hosts that agree", "more than one host", []string{"GET / HTTP/1.1", "Host: many.test", "Host: many.test"}},
		{"list of hosts", "host name", []string{"GET / HTTP/1.1", "Host: many.test, shared.test"}},
		{"no host", "no host", []string{"GET / HTTP/1.1", "Accept: */*"}},
		{"no host, old protocol", "no host", []string{"GET / HTTP/1.0", "Accept: */*"}},
		{"URI and no host", "no host", []string{"GET http://many.test/ HTTP/1.1", "Accept: */*"}},
		{"empty host", "no host", []string{"GET / HTTP/1.1", "Host:"}},
		{"folded host", "folded", []string{"GET / HTTP/1.1", "Host: many.test", " shared.test"}},
		{"folded line", "folded", []string{"GET / HTTP/1.1", "X: y", "\tHost: shared.test", "Host: many.test"}},
		{"first line folded", "folded", []string{"GET / HTTP/1.1", " Host: shared.test", "Host: many.test"}},
		{"space before the colon", "malformed header", []string{"GET / HTTP/1.1", "Host : shared.test", "Host: many.test"}},
		{"host and another port", "another port", []string{"GET / HTTP/1.1", "Host: many.test:8080"}},
		{"userinfo", "", []string{"GET / HTTP/1.1", "Host: many.test@shared.test"}},
		{"userinfo in the URI", "", []string{"GET http://many.test@shared.test/ HTTP/1.1", "Host: many.test"}},
		{"https URI", "target", []string{"GET https://many.test/ HTTP/1.1", "Host: many.test"}},
		{"other scheme", "target", []string{"GET ftp://shared.test/ HTTP/1.1", "Host: many.test"}},
		{"fragment in the URI", "target", []string{"GET http://shared.test#http://many.test/ HTTP/1.1", "Host: many.test"}},
		{"address", "", []string{"GET / HTTP/1.1", "Host: 45.30.60.1"}},
		{"no version", "", []string{"GET /", "Host: many.test"}},
		{"space in the target", "", []string{"GET / http://shared.test/ HTTP/1.1", "Host: many.test"}},
		{"NUL", "control", []string{"GET / HTTP/1.1", "Host: many.test\x00.shared.test"}},
		{"bare CR", "cr lf", []string{"GET / HTTP/1.1", "Host: many.test\rHost: shared.test"}},
		{"bare LF", "cr lf", []string{"GET / HTTP/1.1\nHost: shared.test", "Host: many.test"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			g.of(t).unpassed(request(append(c.lines, "X-Mark: smuggled")...), c.reason, false)
		})
	}
	a := g.next()
	for _, send := range []string{request("GET http://MANY.test/ HTTP/1.1", "Host: many.test:80"), request("OPTIONS * HTTP/1.0", "Host: many.test")} {
		g.Works(g.bytes(rig.At(a, 80), []byte(send))...)
	}
}

var _ = rig.Also(TestSmuggledRequestRefused, rig.InUp)

// TestSmuggledRequestRefused: what another reader could take for a second request.
func TestSmuggledRequestRefused(t *testing.T) {
	g := gate(t)
	post := func(body string, fields ...string) string {
		return request(append([]string{"POST / HTTP/1.1", "Host: many.test"}, fields...)...) + body
	}
	chunked := "0\r\n\r\n" + smuggled
	for _, c := range []struct {
		what, reason string
		send         string
		first        bool // the first request may pass
	}{
		{"CL.TE", "both", post(chunked, fmt.Sprintf("Content-Length: %d", len(chunked)), "Transfer-Encoding: chunked"), false},
		{"TE.CL", "both", post(chunked, "Transfer-Encoding: chunked", "Content-Length: 4"), false},
		{"two lengths", "content-length", post(smuggled, "Content-Length: 0", fmt.Sprintf("Content-Length: %d", len(smuggled))), false},
		{"list of lengths", "content-length", post(smuggled, fmt.Sprintf("Content-Length: 0, %d", len(smuggled))), false},
		{"plus", "content-length", post(smuggled, fmt.Sprintf("Content-Length: +%d", len(smuggled))), false},
		{"hex length", "content-length", post(smuggled, "Content-Length: 0x10"), false},
		{"TE.TE", "transfer-encoding", post(chunked, "Transfer-Encoding: chunked", "Transfer-Encoding: x"), false},
		{"TE list", "transfer-encoding", post(chunked, "Transfer-Encoding: chunked, identity"), false},
		{"TE unknown", "transfer-encoding", post(chunked, "Transfer-Encoding: xchunked"), false},
		{"TE quoted", "transfer-encoding", post(chunked, `Transfer-Encoding: "chunked"`), false},
		{"TE and HTTP/1.0", "transfer-encoding", strings.Replace(post(chunked, "Transfer-Encoding: chunked"), "1.1", "1.0", 1), false},
		{"TE with a space", "malformed header", post(chunked, "Transfer-Encoding : chunked"), false},
		{"TE after a tab", "control", post(chunked, "X: a\vTransfer-Encoding: chunked"), false},
		{"body of a HEAD", "body", request("HEAD / HTTP/1.1", "Host: many.test", fmt.Sprintf("Content-Length: %d", len(smuggled))) + smuggled, false},
		{"behind the body of a GET", dropped, request("GET / HTTP/1.1", "Host: many.test", "Content-Length: 2") + "{}" + smuggled, true},
		{"length removed on the way", "connection names", post(smuggled, "Connection: content-length", "Content-Length: 0"), false},
		{"unknown expectation", "expectation", post(smuggled, "Expect: smuggled", "Content-Length: 0"), false},
		{"chunk size with space", "chunk", post("0 \r\n\r\n"+smuggled, "Transfer-Encoding: chunked"), true},
		{"chunk ends in LF", "chunk", post("0\n\r\n"+smuggled, "Transfer-Encoding: chunked"), true},
		{"chunk too long", "chunk", post("1\r\naSMUGGLE\r\n0\r\n\r\n"+smuggled, "Transfer-Encoding: chunked"), true},
		{"trailer with a host", "trailer", post("0\r\nHost: shared.test\r\nX: smuggled\r\n\r\n", "Transfer-Encoding: chunked"), true},
		{"LF between requests", "cr lf", post("\n"+smuggled, "Content-Length: 0"), true},
		{"pipelined", unlisted, post(smuggled, "Content-Length: 0"), true},
		{"behind a body", dropped, post(chunked, "Transfer-Encoding: chunked"), true},
		{"pipelined behind two", unlisted, post(post(smuggled, "Content-Length: 0"), "Content-Length: 0"), true},
	} {
		t.Run(c.what, func(t *testing.T) {
			p := g.of(t).unpassed(c.send, c.reason, c.first)
			if got, _ := p.Detail["received"].(string); c.reason == unlisted && (!strings.Contains(got, "HTTP/1.1 403 ") || !strings.Contains(got, "shared.test")) {
				t.Errorf("the second request was not answered: %s", p)
			}
		})
	}
}

// TestUpgradeOnlyWhereAllowed: no way out of HTTP on port 80.
func TestUpgradeOnlyWhereAllowed(t *testing.T) {
	g := gate(t)
	g.Lab.Web.Handle("many.test", http.HandlerFunc(echoUpgraded))
	a := g.next()
	args := []string{"upgrade", "-addr", rig.At(a, 80), "-n", "2", "http://many.test/"}
	if p := g.Refused(g.open, rig.Toward(a.String()), args...); p.Detail["status"] != 403.0 {
		t.Errorf("want status 403: %s", p)
	}
	g.logged("http", "deny", a, "many.test", "upgrade")
	for _, c := range []struct{ what, reason, send string }{
		{"h2c or another", "upgrade", request("GET / HTTP/1.1", "Host: many.test", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c, x", "HTTP2-Settings: AAMAAABkAAQAAP__", "X: smuggled")},
		{"h2c without a word", "upgrade", request("GET / HTTP/1.1", "Host: many.test", "HTTP2-Settings: AAMAAABkAAQAAP__", "X: smuggled")},
		{"connection only", "upgrade", request("GET / HTTP/1.1", "Host: many.test", "Connection: keep-alive,  UPGRADE", "X: smuggled")},
		{"prior knowledge", "http/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nsmuggled"},
		{"odd case", "upgrade", request("GET / HTTP/1.1", "Host: many.test", "uPGRADE: websocket", "X: smuggled")},
	} {
		t.Run(c.what, func(t *testing.T) { g.of(t).unpassed(c.send, c.reason, false) })
	}
	t.Run("h2c", func(t *testing.T) { // is not offered to the server
		g := g.of(t)
		a := g.next()
		got := g.Tap(a, 80, "", func(got string) string {
			if !strings.Contains(strings.ToLower(got), "upgrade") {
				return answers(got)
			}
			return "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nfree pipe"
		})
		offer := "GET / HTTP/1.1\r\nHost: many.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
		send := g.bytes(rig.At(a, 80), []byte(offer+"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nsmuggled"), "-all", "-timeout", "2s")
		if p := rig.Sub(g.World, t).Possible(g.open, send...); !strings.Contains(fmt.Sprint(p.Detail["received"]), "free pipe") {
			t.Errorf("proves nothing, not switched without confinement: %s", p)
		}
		got.Forget()
		g.Poke(send...)
		if want := "GET / HTTP/1.1\r\nHost: many.test\r\n\r\n"; got.String() != want {
			t.Errorf("arrived: %q, want %q", got, want)
		}
		g.logged("http", "deny", a, "", "http/2")
	})
	t.Run("server switches unasked", func(t *testing.T) {
		g := g.of(t)
		a := g.next()
		got := g.Tap(a, 80, "", func(string) string { return "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nfree pipe" })
		p := g.Poke(g.bytes(rig.At(a, 80), []byte(request("GET / HTTP/1.1", "Host: many.test")), "-all")...)
		if answer, _ := p.Detail["received"].(string); strings.Contains(answer, "free pipe") {
			t.Errorf("the protocol was switched: %s; arrived: %q", p, got)
		}
		g.logged("connect", "deny", a, "many.test", "switched protocols")
	})
	g.Works("upgrade", "-n", "3", "https://many.test/") // what is inside TLS is TLS's affair
}

// echoUpgraded switches protocols and sends everything back.
func echoUpgraded(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		return
	}
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_, _ = io.Copy(c, rw)
}

// TestRedirectIsJudgedAnew: where an allowed host sends a client is judged anew.
func TestRedirectIsJudgedAnew(t *testing.T) {
	g := gate(t)
	g.Lab.Web.Handle("ok.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Alt-Svc", `h2="shared.test:443"; ma=3600, h2="`+"45.30.0.11"+`:443"`)
		http.Redirect(w, r, map[bool]string{false: "http", true: "https"}[r.TLS != nil]+"://"+r.URL.Query().Get("to")+"/", http.StatusFound)
	}))
	ok4, _ := rig.Named("ok.test")
	for _, scheme := range []string{"http", "https"} {
		p := g.Works("http", scheme+"://ok.test/?to=shared.test")
		if p.Detail["status"] != 302.0 {
			t.Errorf("not redirected: %s", p)
		}
		for _, host := range []string{"shared.test", "evil.test"} {
			// The client knows an address that is open.
			r := g.Script(`curl -sS -L --max-time 5 --resolve "$2:80:$3" --resolve "$2:443:$3" "$1" -o /dev/null -w '%{http_code}'`,
				scheme+"://ok.test/?to="+host, host, ok4.String())
			if scheme == "http" && r.Stdout != "403" || scheme == "https" && (r.Code == 0 || !strings.Contains(r.Stderr, "access denied")) {
				t.Errorf("%s, redirected to %s: %s", scheme, host, r)
			}
			if got := g.Lab.Web.Requests(host); len(got) > 0 {
				t.Errorf("arrived: %+v", got)
			}
		}
	}
	// An alternative service is asked under the origin's name, at any address.
	two4, two6 := rig.Named("ok2.test")
	for _, a := range []netip.Addr{two4, two6} {
		reset(t, g.Refused(g.open, rig.Toward(a.String()), "http", "-addr", rig.At(a, 443), "https://ok.test/?to=ok.test"))
	}
	g.Works("http", "https://ok2.test/")
}
