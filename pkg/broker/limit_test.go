package broker

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// TestSpend holds that routes with limits ask, and that nothing goes on without leave.
func TestSpend(t *testing.T) {
	for name, c := range map[string]struct {
		refused string
		err     error
		status  int
		told    string
	}{
		"within them": {status: 200},
		"over them":   {refused: "the policy allows 2 requests a minute", status: 402, told: "allows 2 requests a minute"},
		"nobody says": {err: errors.New("the line is dead"), status: 503, told: "cannot be checked now"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, true, nil)
			var asked []int64
			r := start(t, a, func(s *setting) {
				free := opaque("free")
				s.Routes[0].Limits.RequestsPerMinute = 2
				s.Routes = append(s.Routes, free)
				s.Credentials["free"] = []byte(canary)
				s.Spend = func(_ context.Context, route string, hold int64) (string, error) {
					if route != "r" {
						t.Errorf("asked for %s", route)
					}
					asked = append(asked, hold)
					return c.refused, c.err
				}
			})
			got := r.ask("POST", "/r/post", "12345")
			if got.StatusCode != c.status || !strings.Contains(got.text, c.told) {
				t.Errorf("answered %d %s", got.StatusCode, got.text)
			}
			if (len(a.requests()) == 1) != (c.status == 200) || len(asked) != 1 || asked[0] != 0 {
				t.Errorf("%d requests, asked for %v", len(a.requests()), asked)
			}
			if got := r.ask("POST", "/free/post", "12345"); got.StatusCode != 200 {
				t.Errorf("a route without limits: answered %d %s", got.StatusCode, got.text)
			}
		})
	}
}

// TestTokens holds that what an answer has cost is recorded, and estimated if nobody stays to hear of it.
func TestTokens(t *testing.T) {
	const begin = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n"
	const text = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"" +
		"Hello there, what a day\"}}\n\n"
	const end = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":15}}\n\n" +
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	anthropic, ok := route.Builtin("anthropic")
	if !ok {
		t.Fatal("no such route")
	}
	anthropic.To = "https://api.test/"
	for name, c := range map[string]struct {
		answer string
		cut    bool
		status int
		in     int64 // least and most
		out    int64
	}{
		"told":              {begin + text + end, false, 200, 25, 15},
		"cut":               {begin + text + text + text, true, 200, 25, 20},
		"cut at its begin":  {"event: ping\ndata: {\"type\":\"ping\"}\n\n", true, 200, 30, 0},
		"refused by theirs": {`{"type":"error","error":{"type":"rate_limit_error","message":"no"}}`, false, 429, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, true, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				w.WriteHeader(c.status)
				io.WriteString(w, c.answer)
				w.(http.Flusher).Flush()
				if c.cut {
					panic(http.ErrAbortHandler)
				}
			})
			r := start(t, a, func(s *setting) {
				s.Routes = []route.Route{anthropic}
				s.Credentials = map[string][]byte{"anthropic": []byte(canary)}
			})
			body := `{"model":"claude-x","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hello, how are you today?"}]}`
			r.raw("POST /anthropic/v1/messages?beta=true HTTP/1.1\r\nHost: " + r.addr + "\r\nAuthorization: Bearer " + token +
				"\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
			e := r.event()
			if e.Model != "claude-x" || e.Status != c.status || e.TokensIn < c.in || e.TokensIn > 2*c.in || e.TokensOut < c.out || e.TokensOut > 2*c.out {
				t.Errorf("recorded %+v", e)
			}
		})
	}
}

// TestHungUpBeforeTheHead: a request of which the server has the head has cost what it held, whoever hangs up.
func TestHungUpBeforeTheHead(t *testing.T) {
	anthropic, _ := route.Builtin("anthropic")
	anthropic.To = "https://api.test/"
	anthropic.Limits.TokensPerDay = 1_000_000
	var client net.Conn
	a := newAPI(t, true, func(_ http.ResponseWriter, r *http.Request) {
		client.Close()
		<-r.Context().Done()
	})
	held := make(chan int64, 1)
	r := start(t, a, func(s *setting) {
		s.Routes, s.Credentials = []route.Route{anthropic}, map[string][]byte{"anthropic": []byte(canary)}
		s.Spend = func(_ context.Context, _ string, hold int64) (string, error) {
			held <- hold
			return "", nil
		}
	})
	body := `{"model":"claude-x","max_tokens":5000,"stream":true,"messages":[{"role":"user","content":"Hello, how are you today?"}]}`
	var err error
	if client, err = net.Dial("tcp", r.addr); err != nil {
		t.Fatal(err)
	}
	io.WriteString(client, "POST /anthropic/v1/messages HTTP/1.1\r\nHost: "+r.addr+"\r\nAuthorization: Bearer "+token+
		"\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body)
	hold := <-held
	if e := r.event(); hold < 5000 || hold > 5000+int64(len(body)) || e.Held != hold || e.TokensIn+e.TokensOut != hold {
		t.Errorf("held %d, recorded %+v", hold, e)
	}
}

// TestRefusalOfTheJudge holds that what the judge refuses reaches nobody, and is told as the API would.
func TestRefusalOfTheJudge(t *testing.T) {
	anthropic, _ := route.Builtin("anthropic")
	anthropic.To = "https://api.test/"
	a := newAPI(t, true, nil)
	r := start(t, a, func(s *setting) {
		s.Routes, s.Credentials = []route.Route{anthropic}, map[string][]byte{"anthropic": []byte(canary)}
	})
	got := r.ask("POST", "/anthropic/v1/messages", `{"model":"m","max_tokens":1,"messages":[],"mcp_servers":[{"type":"url","url":"https://evil.test"}]}`,
		"Content-Type", "application/json")
	if got.StatusCode != 403 || got.Header.Get("X-Should-Retry") != "false" || !strings.Contains(got.text, `"type":"permission_error"`) {
		t.Errorf("answered %d %s", got.StatusCode, got.text)
	}
	if e := r.event(); e.Refused == "" || e.Status != 403 || len(a.requests()) > 0 {
		t.Errorf("recorded %+v, %d requests", e, len(a.requests()))
	}
	r.allFree()
}
