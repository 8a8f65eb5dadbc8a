package ui

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// endpoints are all that need a pass, with a request that would do something.
func endpoints(r *rig) map[string]func() *http.Request {
	return map[string]func() *http.Request{
		"fleet":  func() *http.Request { return r.request("GET", "/api/fleet", "") },
		"log":    func() *http.Request { return r.request("GET", "/api/log?container="+one, "") },
		"answer": func() *http.Request { return r.request("POST", "/api/answer", answerBody("10m")) },
		"stop":   func() *http.Request { return r.request("POST", "/api/stop", `{"container":"`+one+`"}`) },
		"attach": func() *http.Request { return r.handshake(one) },
	}
}

func answerBody(word string) string {
	return `{"container":"` + one + `","number":7,"target":"a.example","answer":"` + word + `"}`
}

// handshake is how a page opens a terminal.
func (r *rig) handshake(container string) *http.Request {
	q := r.request("GET", "/api/attach?cols=100&rows=30&container="+container, "")
	q.Header.Del(keyHeader)
	q.Header.Set("Origin", "http://"+r.server.host)
	q.Header.Set("Connection", "Upgrade")
	q.Header.Set("Upgrade", "websocket")
	q.Header.Set("Sec-WebSocket-Version", "13")
	q.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	q.Header.Set("Sec-WebSocket-Protocol", "agent-init, key."+r.pass.key)
	return q
}

// ready is a rig with somebody inside, and a request that waits.
func ready(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.asks(one, 7, "a.example", "to build")
	r.enter()
	if v := r.fleet(); len(v.Containers) != 2 {
		t.Fatalf("fleet: %+v", v)
	}
	return r
}

// TestAttackersGetNothing plays those who can make a request, each against all that needs a pass. The last row shows
// that the same requests work for the page.
func TestAttackersGetNothing(t *testing.T) {
	r := ready(t)
	mine, evil := "http://"+r.server.host, "http://attacker.example"
	for _, c := range []struct {
		name   string
		change func(q *http.Request)
		status int
	}{
		{"rebinding: a name of the attacker's points here", func(q *http.Request) { q.Host = "attacker.example:" + r.server.port }, 421},
		{"rebinding, with the origin that goes with it", func(q *http.Request) {
			q.Host = "attacker.example:" + r.server.port
			q.Header.Set("Origin", "http://attacker.example:"+r.server.port)
		}, 421},
		{"localhost, which may be another's on ::1", func(q *http.Request) { q.Host = "localhost:" + r.server.port }, 421},
		{"the address without the port", func(q *http.Request) { q.Host = "127.0.0.1" }, 421},
		{"another spelling of the address", func(q *http.Request) { q.Host = "127.1:" + r.server.port }, 421},
		{"a dot behind it", func(q *http.Request) { q.Host = "127.0.0.1.:" + r.server.port }, 421},
		{"a page elsewhere", func(q *http.Request) { q.Header.Set("Origin", evil) }, 403},
		{"a page without an origin (sandbox, file:)", func(q *http.Request) { q.Header.Set("Origin", "null") }, 403},
		{"a server on another port", func(q *http.Request) { q.Header.Set("Origin", "http://127.0.0.1:3000") }, 403},
		{"a prefix of ours", func(q *http.Request) { q.Header.Set("Origin", mine[:len(mine)-1]) }, 403},
		{"ours is a prefix", func(q *http.Request) { q.Header.Set("Origin", mine+".attacker.example") }, 403},
		{"https on the same port", func(q *http.Request) { q.Header.Set("Origin", "https://"+r.server.host) }, 403},
		{"two origins", func(q *http.Request) { q.Header["Origin"] = []string{mine, evil} }, 403},
		{"the browser says: another site", func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		{"the browser says: another port", func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "same-site") }, 403},
		{"typed into the address bar", func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "none") }, 403},
		{"another user, without anything", func(q *http.Request) { q.Header.Del("Cookie"); unkey(q) }, 401},
		{"the cookie alone, which other ports see", unkey, 401},
		{"the key alone", func(q *http.Request) { q.Header.Del("Cookie") }, 401},
		{"a cookie of that name, put by another port", func(q *http.Request) {
			q.Header.Set("Cookie", cookieName(r.server.port)+"=x; "+q.Header.Get("Cookie"))
		}, 401},
		{"an empty cookie and an empty key", func(q *http.Request) {
			q.Header.Set("Cookie", cookieName(r.server.port)+"=")
			unkey(q)
		}, 401},
		{"key and cookie in each other's place", func(q *http.Request) {
			q.Header.Set("Cookie", cookieName(r.server.port)+"="+r.pass.key)
			q.Header.Set(keyHeader, r.pass.cookie)
			q.Header.Set("Sec-WebSocket-Protocol", "agent-init, key."+r.pass.cookie)
		}, 401},
	} {
		for name, request := range endpoints(r) {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				q := request()
				c.change(q)
				if a := r.send(q); a.status != c.status {
					t.Errorf("status %d, want %d: %s", a.status, c.status, a.body)
				}
			})
		}
	}
	if calls := r.calls(); calls != "" {
		t.Errorf("the engine was told: %s", calls)
	}
	for name, request := range endpoints(r) {
		if a := r.send(request()); a.status >= 400 {
			t.Errorf("the page's own %s: %d %s", name, a.status, a.body)
		}
	}
}

// unkey takes the page's half of the pass away.
func unkey(q *http.Request) {
	q.Header.Del(keyHeader)
	if q.Header.Get("Upgrade") != "" {
		q.Header.Set("Sec-WebSocket-Protocol", "agent-init")
	}
}

// TestAPageSaysItsOrigin: a browser sends it with whatever changes something, and with a WebSocket.
func TestAPageSaysItsOrigin(t *testing.T) {
	r := ready(t)
	for _, name := range []string{"answer", "stop", "attach"} {
		q := endpoints(r)[name]()
		q.Header.Del("Origin")
		if a := r.send(q); a.status != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if calls := r.calls(); calls != "" {
		t.Errorf("the engine was told: %s", calls)
	}
}

// TestTwoPassesDontMix: each half goes with the other that was given with it.
func TestTwoPassesDontMix(t *testing.T) {
	r := newRig(t)
	r.enter()
	first := r.pass
	r.pass = pass{}
	r.enter()
	r.pass.key = first.key
	if a := r.send(r.request("GET", "/api/fleet", "")); a.status != http.StatusUnauthorized {
		t.Errorf("status %d", a.status)
	}
}

// TestAFormCanDoNothing: it sends no JSON, and a script of another origin that says JSON has to ask first.
func TestAFormCanDoNothing(t *testing.T) {
	r := ready(t)
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "text/json"} {
		q := r.request("POST", "/api/stop", `{"container":"`+one+`"}`)
		q.Header.Set("Content-Type", kind)
		if a := r.send(q); a.status != http.StatusUnsupportedMediaType {
			t.Errorf("%q: %d", kind, a.status)
		}
	}
	q := r.request("OPTIONS", "/api/stop", "")
	q.Header.Set("Origin", "http://attacker.example")
	q.Header.Set("Access-Control-Request-Method", "POST")
	q.Header.Set("Access-Control-Request-Headers", "content-type,x-agent-init-key")
	a := r.send(q)
	for name := range a.header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("%s: %s", name, a.header.Get(name))
		}
	}
	if a.status < 400 {
		t.Errorf("the question before a request was answered with %d", a.status)
	}
	if calls := r.calls(); calls != "" {
		t.Errorf("the engine was told: %s", calls)
	}
}

// TestOtherPagesCanEmbedNothing: no script, image or frame of another page's can tell that the server is there.
func TestOtherPagesCanEmbedNothing(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		site, mode, dest string
		status           int
	}{
		{"cross-site", "no-cors", "script", 403},
		{"same-site", "no-cors", "script", 403},
		{"cross-site", "no-cors", "image", 403},
		{"cross-site", "navigate", "iframe", 403},
		{"same-site", "navigate", "iframe", 403},
		{"cross-site", "navigate", "embed", 403},
		{"cross-site", "cors", "empty", 403},
		{"cross-site", "navigate", "document", 200}, // a link in another program's page
		{"none", "navigate", "document", 200},
		{"same-origin", "no-cors", "script", 200},
	} {
		for _, path := range []string{"/", "/page.js", "/terminal"} {
			q := r.request("GET", path, "")
			q.Header.Set("Sec-Fetch-Site", c.site)
			q.Header.Set("Sec-Fetch-Mode", c.mode)
			q.Header.Set("Sec-Fetch-Dest", c.dest)
			if a := r.send(q); a.status != c.status {
				t.Errorf("%s %+v: %d", path, c, a.status)
			}
		}
	}
}

// TestALinkIsGoodForOnce, whoever comes first, and the one before a new one not at all.
func TestALinkIsGoodForOnce(t *testing.T) {
	r := newRig(t)
	_, old, _ := strings.Cut(r.server.Link(), "#")
	_, token, _ := strings.Cut(r.server.Link(), "#")
	try := func(token string) int {
		return r.send(r.request("POST", "/api/enter", `{"token":"`+token+`"}`)).status
	}
	for _, wrong := range []string{"", old, token[:len(token)-1], token + "x", strings.ToLower(token)} {
		if status := try(wrong); status != http.StatusUnauthorized {
			t.Errorf("%q: %d", wrong, status)
		}
	}
	var wg sync.WaitGroup
	got := make(chan int, 32)
	for range cap(got) {
		wg.Go(func() { got <- try(token) })
	}
	wg.Wait()
	close(got)
	in := 0
	for status := range got {
		if status == http.StatusOK {
			in++
		} else if status != http.StatusUnauthorized {
			t.Errorf("status %d", status)
		}
	}
	if in != 1 {
		t.Errorf("%d came in by one link", in)
	}
}

// TestTheTokenStaysWithTheBrowser: it is in no request line, so in no Referer and no log, and the cookie is strict.
func TestTheTokenStaysWithTheBrowser(t *testing.T) {
	r := newRig(t)
	link := r.server.Link()
	before, token, ok := strings.Cut(link, "/#")
	if !ok || before != "http://"+r.server.host || len(token) < 40 || strings.ContainsAny(token, "?&=") {
		t.Errorf("the link is %s", link)
	}
	q := r.request("POST", "/api/enter", `{"token":"`+token+`"}`)
	a := r.send(q)
	if a.header.Get("Referrer-Policy") != "no-referrer" || strings.Contains(a.body, token) {
		t.Errorf("%v %s", a.header, a.body)
	}
	cookie := a.header.Get("Set-Cookie")
	if !strings.HasPrefix(cookie, cookieName(r.server.port)+"=") || !strings.HasSuffix(cookie, "; Path=/; HttpOnly; SameSite=Strict") {
		t.Errorf("the cookie is %s", cookie)
	}
	if strings.Contains(a.body, cookie[strings.Index(cookie, "=")+1:strings.Index(cookie, ";")]) {
		t.Error("the page can read the cookie")
	}
}

// TestOnlyLoopback: no other machine can reach it.
func TestOnlyLoopback(t *testing.T) {
	r := newRig(t)
	if a := r.server.listener.Addr().(*net.TCPAddr); !a.IP.Equal(net.IPv4(127, 0, 0, 1)) {
		t.Errorf("it listens on %v", a)
	}
}

// TestEveryAnswerIsHardened, refusals and what is not there included.
func TestEveryAnswerIsHardened(t *testing.T) {
	r := newRig(t)
	r.enter()
	for _, path := range []string{"/", "/terminal", "/page.js", "/page.css", "/xterm.js", "/nothing", "/api/fleet", "/api/nothing", "/api/log"} {
		for _, origin := range []string{"", "http://attacker.example"} {
			q := r.request("GET", path, "")
			if origin != "" {
				q.Header.Set("Origin", origin)
			}
			a := r.send(q)
			policy := a.header.Get("Content-Security-Policy")
			for _, want := range []string{
				"default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'",
				"require-trusted-types-for 'script'", "connect-src 'self' ws://" + r.server.host + ";",
			} {
				if !strings.Contains(policy, want) {
					t.Errorf("%s: no %s in %s", path, want, policy)
				}
			}
			if strings.Contains(policy, "unsafe") != (path == "/terminal") || strings.Contains(policy, "unsafe-eval") ||
				strings.Contains(policy, "script-src 'self' ") {
				t.Errorf("%s: %s", path, policy)
			}
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
				"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Access-Control-Allow-Origin": "",
			} {
				if got := a.header.Get(name); got != want {
					t.Errorf("%s: %s: %q", path, name, got)
				}
			}
		}
	}
}

// TestOddRequests: what no browser sends is answered with nothing of use.
func TestOddRequests(t *testing.T) {
	r := ready(t)
	host := "Host: " + r.server.host
	have := []string{
		"Cookie: " + cookieName(r.server.port) + "=" + r.pass.cookie, keyHeader + ": " + r.pass.key, "Connection: close",
	}
	for _, c := range []struct {
		name  string
		lines []string
	}{
		{"two hosts", append([]string{"GET /api/fleet HTTP/1.1", host, "Host: attacker.example"}, have...)},
		{"no host", append([]string{"GET /api/fleet HTTP/1.1"}, have...)},
		{"a whole address of another host's", append([]string{"GET http://attacker.example/api/fleet HTTP/1.1", host}, have...)},
		{"slashes before it", append([]string{"GET //api/fleet HTTP/1.1", host}, have[2:]...)},
		{"dots in it", append([]string{"GET /x/../api/fleet HTTP/1.1", host}, have[2:]...)},
		{"a slash in disguise", append([]string{"GET /api%2ffleet HTTP/1.1", host}, have...)},
		{"another method", append([]string{"PUT /api/fleet HTTP/1.1", host, "Origin: http://" + r.server.host}, have...)},
		{"get for what changes something", append([]string{"GET /api/stop?container=" + one + " HTTP/1.1", host}, have...)},
		{"head", append([]string{"HEAD /api/fleet HTTP/1.1", host}, have...)},
		{"trace", append([]string{"TRACE / HTTP/1.1", host}, have...)},
		{"connect", append([]string{"CONNECT 127.0.0.1:22 HTTP/1.1", host}, have...)},
		{"two lengths", append([]string{"POST /api/stop HTTP/1.1", host, "Content-Length: 1", "Content-Length: 2"}, have...)},
	} {
		if a := r.raw(c.lines...); a.status < 300 || strings.Contains(a.body, "agent-one") {
			t.Errorf("%s: %d %s", c.name, a.status, a.body)
		}
	}
	endless := r.dial()
	defer endless.Close()
	fmt.Fprintf(endless, "GET /api/fleet HTTP/1.1\r\n%s\r\nX: ", host)
	endless.Write([]byte(strings.Repeat("x", 1<<20))) // the server hangs up in the middle
	if raw, _ := io.ReadAll(endless); len(raw) > 0 && !strings.HasPrefix(string(raw), "HTTP/1.1 431 ") {
		t.Errorf("a head without end: %.80q", raw)
	}
	for name, body := range map[string]string{
		"nothing": "", "no object": "7", "a field too many": `{"container":"` + one + `","x":1}`, "two objects": `{"container":"` + one + `"}{}`,
		"too long":      `{"container":"` + strings.Repeat("1", maxBody) + `"}`,
		"another type":  `{"container":["` + one + `"]}`,
		"not in list":   `{"container":"` + strings.Repeat("3", 64) + `"}`,
		"an option":     `{"container":"--help"}`,
		"a part of one": `{"container":"` + one[:12] + `"}`,
	} {
		if a := r.send(r.request("POST", "/api/stop", body)); a.status < 400 || a.status >= 500 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if calls := r.calls(); calls != "" {
		t.Errorf("the engine was told: %s", calls)
	}
}

// TestOthersCanNotKeepAPersonOut: another user of the machine can fill the port with connections, and say nothing on
// them. They make room for one another, a person who is inside stays, and one who comes gets a turn.
func TestOthersCanNotKeepAPersonOut(t *testing.T) {
	r := newRig(t)
	r.enter()
	inside := r.dial()
	defer inside.Close()
	ask := func() answered {
		if err := r.request("GET", "/api/fleet", "").Write(inside); err != nil {
			t.Fatal(err)
		}
		return r.answer(inside)
	}
	if a := ask(); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var idle []net.Conn
	for i := range 3 * maxStrangers {
		conn := r.dial()
		defer conn.Close()
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nX-%d: ", i) // and nothing more
		idle = append(idle, conn)
	}
	if a := ask(); a.status != http.StatusOK {
		t.Errorf("who was inside: %d %s", a.status, a.body)
	}
	if a := r.send(r.request("GET", "/", "")); a.status != http.StatusOK {
		t.Errorf("who comes: %d", a.status)
	}
	for i, conn := range idle[:maxStrangers] { // the oldest had to go
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Fatalf("connection %d is still there: %v", i, err)
		}
	}
	c := r.server.listener.(*crowd)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.strangers) > maxStrangers || c.friends < 1 || c.friends > maxFriends {
		t.Errorf("%d strangers and %d friends", len(c.strangers), c.friends)
	}
}
