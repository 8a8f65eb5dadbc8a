package broker

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/broker/inspect"
	"github.com/agent-init/agent-init/pkg/broker/room"
	"github.com/agent-init/agent-init/pkg/route"
)

// TestRequestGoesOn holds what the API gets, what comes back, and what is recorded.
func TestRequestGoesOn(t *testing.T) {
	for proto, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(proto, func(t *testing.T) {
			a := newAPI(t, http2, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Answer", "yes")
				w.WriteHeader(http.StatusCreated)
				io.WriteString(w, "hello")
			})
			r := start(t, a)
			got := r.ask("POST", "/r/post", "the body", "X-Fine", "1", "X-List-A", "2", "X-Other", "3")
			if got.StatusCode != http.StatusCreated || got.text != "hello" || got.Header.Get("X-Answer") != "yes" {
				t.Fatalf("answered %d %q %v", got.StatusCode, got.text, got.Header)
			}
			q := a.requests()[0]
			body, _ := io.ReadAll(q.Body)
			if q.Proto != proto || q.Method != "POST" || q.RequestURI != "/base/post" || q.Host != "api.test" || string(body) != "the body" {
				t.Errorf("the API got %s %s %s of %s: %q", q.Proto, q.Method, q.RequestURI, q.Host, body)
			}
			for name, want := range map[string]string{
				"X-Api-Key": canary, "X-Fine": "1", "X-List-A": "2", "X-Other": "", "Accept-Encoding": "identity",
			} {
				if got := q.Header.Get(name); got != want {
					t.Errorf("the API got %s: %q, want %q", name, got, want)
				}
			}
			e := r.event()
			if e.Route != "r" || e.Method != "POST" || e.Path != "/post" || e.Status != 201 || e.Refused != "" ||
				e.Sent != 8 || e.Received != 5 || e.Fingerprint != route.Fingerprint([]byte(canary)) ||
				e.Took < e.FirstByte || e.FirstByte <= 0 {
				t.Errorf("recorded %+v", e)
			}
		})
	}
}

// TestWhoMayAsk holds that only who has the token, and asks this very server, is listened to.
func TestWhoMayAsk(t *testing.T) {
	a := newAPI(t, true, nil)
	r := start(t, a)
	_, port, _ := strings.Cut(r.addr, ":")
	const right = "X-Api-Key: " + token + "\r\n"
	get := func(target, host, headers string) string {
		return "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n" + headers + "\r\n"
	}
	for name, c := range map[string]struct {
		request string
		status  string // of the answer
	}{
		"its address":            {get("/r/get", "127.0.0.1:"+port, right), "200"},
		"its name":               {get("/r/get", "LocalHost:"+port, right), "200"},
		"its other address":      {get("/r/get", "[::1]:"+port, right), "200"},
		"another name":           {get("/r/get", "evil.test:"+port, right), "403"},
		"another port":           {get("/r/get", "127.0.0.1:1", right), "403"},
		"no port":                {get("/r/get", "127.0.0.1", right), "403"},
		"another loopback":       {get("/r/get", "127.0.0.2:"+port, right), "403"},
		"a name that ends so":    {get("/r/get", "x.localhost:"+port, right), "403"},
		"no name":                {get("/r/get", "", right), "403"},
		"two names":              {get("/r/get", "127.0.0.1:"+port, "Host: evil.test\r\n"+right), "400"},
		"a page":                 {get("/r/get", "127.0.0.1:"+port, "Origin: http://evil.test\r\n"+right), "403"},
		"an empty origin":        {get("/r/get", "127.0.0.1:"+port, "Origin:\r\n"+right), "403"},
		"absolute form":          {get("http://127.0.0.1:"+port+"/r/get", "127.0.0.1:"+port, right), "403"},
		"absolute, elsewhere":    {get("http://evil.test/r/get", "127.0.0.1:"+port, right), "403"},
		"an asterisk":            {"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1:" + port + "\r\n" + right + "\r\n", "403"},
		"CONNECT":                {"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n" + right + "\r\n", "403"},
		"CONNECT to itself":      {"CONNECT 127.0.0.1:" + port + " HTTP/1.1\r\nHost: 127.0.0.1:" + port + "\r\n" + right + "\r\n", "403"},
		"HTTP/1.0":               {"GET /r/get HTTP/1.0\r\nHost: 127.0.0.1:" + port + "\r\n" + right + "\r\n", "403"},
		"HTTP/2 at once":         {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "403"},
		"no token":               {get("/r/get", "127.0.0.1:"+port, ""), "401"},
		"no token, no route":     {get("/x/get", "127.0.0.1:"+port, ""), "401"},
		"an empty token":         {get("/r/get", "127.0.0.1:"+port, "X-Api-Key:\r\n"), "401"},
		"a part of the token":    {get("/r/get", "127.0.0.1:"+port, "X-Api-Key: "+token[1:]+"\r\n"), "401"},
		"another token":          {get("/r/get", "127.0.0.1:"+port, "X-Api-Key: "+token[1:]+"0\r\n"), "401"},
		"more than the token":    {get("/r/get", "127.0.0.1:"+port, "X-Api-Key: "+token+"0\r\n"), "401"},
		"the API's key":          {get("/r/get", "127.0.0.1:"+port, "X-Api-Key: "+canary+"\r\n"), "401"},
		"bearer":                 {get("/r/get", "127.0.0.1:"+port, "Authorization: bearer "+token+"\r\n"), "200"},
		"another scheme":         {get("/r/get", "127.0.0.1:"+port, "Authorization: Digest "+token+"\r\n"), "401"},
		"basic":                  {get("/r/get", "127.0.0.1:"+port, basic(token)), "200"},
		"Google's header":        {get("/r/get", "127.0.0.1:"+port, "X-Goog-Api-Key: "+token+"\r\n"), "200"},
		"Azure's header":         {get("/r/get", "127.0.0.1:"+port, "Api-Key: "+token+"\r\n"), "200"},
		"Google's parameter":     {get("/r/get?key="+token, "127.0.0.1:"+port, ""), "200"},
		"another parameter":      {get("/r/get?token="+token, "127.0.0.1:"+port, ""), "401"},
		"a cookie":               {get("/r/get", "127.0.0.1:"+port, "Cookie: key="+token+"\r\n"), "401"},
		"in a shape":             {get("/r/get", "127.0.0.1:"+port, "X-Api-Key: sk-ant-"+token+"\r\n"), "200"},
		"two keys, one right":    {get("/r/get", "127.0.0.1:"+port, "Authorization: Bearer x\r\n"+right), "200"},
		"no such route":          {get("/x/get", "127.0.0.1:"+port, right), "403"},
		"no route":               {get("/", "127.0.0.1:"+port, right), "403"},
		"a route's name, spelt":  {get("/%72/get", "127.0.0.1:"+port, right), "403"},
		"another path":           {get("/r/other", "127.0.0.1:"+port, right), "403"},
		"dots":                   {get("/r/many/../../x", "127.0.0.1:"+port, right), "403"},
		"dots, escaped":          {get("/r/many/%2e%2e/x", "127.0.0.1:"+port, right), "403"},
		"a parameter":            {get("/r/get?a=b", "127.0.0.1:"+port, right), "403"},
		"another method":         {"DELETE /r/get HTTP/1.1\r\nHost: 127.0.0.1:" + port + "\r\n" + right + "\r\n", "403"},
		"a body where is none":   {get("/r/get", "127.0.0.1:"+port, right+"Content-Length: 1\r\n") + "x", "403"},
		"a websocket":            {get("/r/get", "127.0.0.1:"+port, right+"Connection: Upgrade\r\nUpgrade: websocket\r\n"), "426"},
		"a websocket, a strange": {get("/r/get", "127.0.0.1:"+port, "Connection: Upgrade\r\nUpgrade: websocket\r\n"), "401"},
		"offers HTTP/2":          {get("/r/get", "127.0.0.1:"+port, right+"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"), "200"},
		"no HTTP":                {"hello\r\n\r\n", "400"},
		"a large head":           {get("/r/get", "127.0.0.1:"+port, right+"X-Fine: "+strings.Repeat("x", 64<<10)+"\r\n"), "431"},
	} {
		before := len(a.requests())
		answer := r.raw(c.request)
		if len(answer) < 12 || answer[9:12] != c.status {
			t.Errorf("%s: answered %q, want %s", name, answer, c.status)
		}
		if reached := len(a.requests()) - before; (c.status == "200") != (reached == 1) {
			t.Errorf("%s: %d requests reached the API", name, reached)
		}
		if c.status[0] == '4' && c.status != "400" && c.status != "431" {
			head, body, _ := strings.Cut(answer, "\r\n\r\n")
			if !strings.Contains(head, "X-Should-Retry: false") || !strings.Contains(body, "refused by agent-init: ") {
				t.Errorf("%s: answered %q", name, answer)
			}
		}
		if strings.Contains(answer, token) || strings.Contains(answer, canary) {
			t.Errorf("%s: a secret in %q", name, answer)
		}
	}
}

// TestWhoseConnection holds that the user of a connection is asked for, before anything is read.
func TestWhoseConnection(t *testing.T) {
	a := newAPI(t, true, nil)
	for name, c := range map[string]struct {
		uid    uint32
		err    error
		status int
	}{
		"the agent": {uid: 1000, status: 200},
		"another":   {uid: 1001, status: 403},
		"nobody":    {uid: 0, err: io.ErrUnexpectedEOF, status: 403},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan [2]netip.AddrPort, 10)
			r := start(t, a, func(s *setting) {
				s.UIDs = []uint32{1000}
				s.Owner = func(client, server netip.AddrPort) (uint32, error) {
					asked <- [2]netip.AddrPort{client, server}
					return c.uid, c.err
				}
			})
			req, err := http.NewRequest("GET", "http://"+r.addr+"/r/get", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Api-Key", token)
			resp, err := client.Do(req)
			if err != nil && c.status == 200 {
				t.Fatal(err)
			}
			if err == nil { // else the end of the connection was seen before what came in front of it
				resp.Body.Close()
				if resp.StatusCode != c.status {
					t.Errorf("answered %d", resp.StatusCode)
				}
			}
			if e := r.event(); e.Status != c.status || e.UID != c.uid {
				t.Errorf("recorded %+v", e)
			}
			if ends := <-asked; ends[1].String() != r.addr || ends[0] == ends[1] {
				t.Errorf("asked for %v", ends)
			}
		})
	}
}

// TestOpenRoute holds that a route is open to those users alone whom the kernel names, and to nobody where it can't.
func TestOpenRoute(t *testing.T) {
	a := newAPI(t, true, nil)
	owner := func(netip.AddrPort, netip.AddrPort) (uint32, error) { return 1000, nil }
	for name, c := range map[string]struct {
		open   bool
		uids   []uint32
		owner  func(client, server netip.AddrPort) (uint32, error)
		status int
	}{
		"known":         {true, []uint32{1000}, owner, 200},
		"closed":        {false, []uint32{1000}, owner, 401},
		"of a pod":      {true, nil, owner, 401},
		"kernel is mum": {true, []uint32{1000}, nil, 401},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, a, func(s *setting) { s.UIDs, s.Owner, s.Routes[0].Open = c.uids, c.owner, c.open })
			req, err := http.NewRequest("GET", "http://"+r.addr+"/r/get", nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.do(req); got.StatusCode != c.status {
				t.Errorf("answered %d, want %d", got.StatusCode, c.status)
			}
		})
	}
}

// TestConnectionsOfOneUser holds that there is an end to them, and that each that is closed makes room.
func TestConnectionsOfOneUser(t *testing.T) {
	all := newCallers(Config{Config: inspect.Config{Record: func(Event) {}, Room: room.New(maxHeld)}})
	conns := make([]*caller, maxOfCaller+1)
	for i := range conns {
		all.free <- struct{}{}
		conns[i] = &caller{Conn: nothing{}, all: all, head: all.Room.Coming(nil)}
		all.conns[conns[i]] = struct{}{}
		if ok := conns[i].count(7); ok != (i < maxOfCaller) {
			t.Fatalf("connection %d counts: %v", i, ok)
		}
	}
	if !conns[0].count(8) {
		t.Error("another user has no room")
	}
	conns[1].Close()
	conns[1].Close()
	if !conns[maxOfCaller].count(7) {
		t.Error("a closed connection made no room")
	}
	if conns[1].count(7) {
		t.Error("a closed connection counts")
	}
}

// TestSilentConnections: connections that ask for nothing, or not for all of it, are in the way of no other of their user.
func TestSilentConnections(t *testing.T) {
	r := start(t, newAPI(t, false, nil), func(s *setting) {
		s.Owner = func(client, server netip.AddrPort) (uint32, error) { return 1000, nil }
	})
	for i := range maxOfCaller + 8 {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			io.WriteString(c, "POST /ope")
		}
	}
	for range 3 {
		if got := r.ask("GET", "/r/get", ""); got.StatusCode != http.StatusOK {
			t.Errorf("answered %d: %s", got.StatusCode, got.text)
		}
	}
}

// TestRefusedWhileItSends: a client that looks for an answer only when it has sent all hears why it is refused.
func TestRefusedWhileItSends(t *testing.T) {
	r := hubOf(t, newAPI(t, false, nil), route.Git{Write: true, Branches: []string{"agent/*"}}, nil)
	for path, status := range map[string]string{
		"/none":                        "403",
		"/github/o/r/git-receive-pack": "200", // with a report of what was refused
	} {
		conn, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		const size = 16 << 20 // more than sockets hold
		_, err = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: "+r.addr+"\r\nAuthorization: Bearer "+token+
			"\r\nContent-Type: "+pushType+"\r\nContent-Length: "+strconv.Itoa(size)+"\r\n\r\n"+
			commandTo("refs/heads/main")+strings.Repeat("x", size-len(commandTo("refs/heads/main"))))
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if got, _ := io.ReadAll(conn); !strings.HasPrefix(string(got), "HTTP/1.1 "+status) {
			t.Errorf("%s: %q", path, got)
		}
		conn.Close()
	}
}
