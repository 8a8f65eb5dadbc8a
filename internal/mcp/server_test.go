package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// tools are one that answers, one that fails, and one that waits until it is given up.
func tools() *Server {
	return &Server{Name: "test", Version: "1", Instructions: "be good", Tools: []Tool{
		{Name: "echo", ReadOnly: true, Input: json.RawMessage(`{"type":"object"}`), Call: func(_ context.Context, a json.RawMessage) (string, error) {
			return "got " + string(a), nil
		}},
		{Name: "fail", Input: json.RawMessage(`{"type":"object"}`), Call: func(context.Context, json.RawMessage) (string, error) {
			return "", errors.New("no such luck")
		}},
		{Name: "wait", Input: json.RawMessage(`{"type":"object"}`), Call: func(ctx context.Context, _ json.RawMessage) (string, error) {
			<-ctx.Done()
			return "over", nil
		}},
	}}
}

// client is the other end of a server that runs.
type client struct {
	*testing.T
	to   *io.PipeWriter
	from *bufio.Reader
	over chan error
}

func newClient(t *testing.T) *client {
	fromClient, to := io.Pipe()
	from, toClient := io.Pipe()
	c := &client{t, to, bufio.NewReader(from), make(chan error, 1)}
	go func() {
		c.over <- tools().Serve(context.Background(), fromClient, toClient)
		toClient.Close()
	}()
	t.Cleanup(func() { to.Close() })
	return c
}

func (c *client) say(line string) {
	c.Helper()
	if _, err := io.WriteString(c.to, line+"\n"); err != nil {
		c.Fatal(err)
	}
}

func (c *client) hear(want string) {
	c.Helper()
	got, err := c.from.ReadString('\n')
	if err != nil || strings.TrimSpace(got) != want {
		c.Errorf("got %s(%v), want %s", got, err, want)
	}
}

// TestMessages: each line gets its answer, whatever it is, and the next one is read.
func TestMessages(t *testing.T) {
	refused := func(id string, code int, why string) string {
		return fmt.Sprintf(`{"error":{"code":%d,"message":"%s"},"id":%s,"jsonrpc":"2.0"}`, code, why, id)
	}
	const notOne, badID = "a message is one object of JSON-RPC 2.0", "an id is a string or a number, and short"
	c := newClient(t)
	for _, step := range []struct{ say, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"id":1,"jsonrpc":"2.0","result":{}}`},
		{`  {"jsonrpc":"2.0","id":"a\"b","method":"ping"} ` + "\r", `{"id":"a\"b","jsonrpc":"2.0","result":{}}`},
		{`nonsense`, refused("null", codeParse, "not JSON")},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"`, refused("null", codeParse, "not JSON")},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, refused("null", codeRequest, notOne)},
		{`"ping"`, refused("null", codeRequest, notOne)},
		{`{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}`, refused("null", codeRequest, badID)},
		{`{"jsonrpc":"2.0","id":true,"method":"ping"}`, refused("null", codeRequest, badID)},
		{`{"jsonrpc":"2.0","id":"` + strings.Repeat("i", maxID) + `","method":"ping"}`, refused("null", codeRequest, badID)},
		{`{"jsonrpc":"2.0","id":1,"method":7}`, refused("null", codeRequest, notOne)},
		{`{"jsonrpc":"1.0","id":1,"method":"ping"}`, refused("1", codeRequest, "a message is one of JSON-RPC 2.0")},
		{`{"jsonrpc":"2.0","id":1,"method":"resources/list"}`, refused("1", codeMethod, "there is no such method here")},
		{strings.Repeat("x", 3*maxLine), refused("null", codeRequest, fmt.Sprintf("a message has at most %d bytes", maxLine))},
		{strings.Repeat("[", maxLine-2), refused("null", codeParse, "not JSON")},
		{"\n \n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + `{"jsonrpc":"2.0","id":9,"result":{}}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"ping"}`, `{"id":2,"jsonrpc":"2.0","result":{}}`},
		{`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo","arguments":{"a":"\u2028"}}}`,
			`{"id":3,"jsonrpc":"2.0","result":{"content":[{"text":"got {\"a\":\"\\u2028\"}","type":"text"}],"isError":false}}`},
		{`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo"}}`, `{"id":3,"jsonrpc":"2.0","result":{"content":[{"text":"got {}","type":"text"}],"isError":false}}`},
		{`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"fail","arguments":null}}`, `{"id":4,"jsonrpc":"2.0","result":{"content":[{"text":"no such luck","type":"text"}],"isError":true}}`},
		{`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"sh"}}`, refused("5", codeParams, "there is no such tool")},
		{`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":"echo"}`, refused("5", codeParams, "tools/call says a name and arguments")},
		{`{"jsonrpc":"2.0","id":5,"method":"tools/call"}`, refused("5", codeParams, "tools/call says a name and arguments")},
	} {
		c.say(step.say)
		c.hear(step.want)
	}
	c.to.Close()
	if err := <-c.over; err != nil {
		t.Error(err)
	}
}

// TestVersions: a client hears the version that it has asked for, or else one that it is likely to speak.
func TestVersions(t *testing.T) {
	c := newClient(t)
	for asked, want := range map[string]string{
		"2025-11-25": "2025-11-25", "2025-06-18": "2025-06-18", "2025-03-26": "2024-11-05", "2024-11-05": "2024-11-05", "2024-10-07": "2024-11-05", "2030-01-01": "2025-11-25", "": "2024-11-05",
	} {
		c.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, asked))
		c.hear(fmt.Sprintf(`{"id":0,"jsonrpc":"2.0","result":{"capabilities":{"tools":{}},"instructions":"be good","protocolVersion":%q,"serverInfo":{"name":"test","version":"1"}}}`, want))
	}
}

// TestCallsAtOnce: calls that wait keep nobody else from being answered, are bounded, and end when they are given up.
func TestCallsAtOnce(t *testing.T) {
	c := newClient(t)
	wait := func(id int) {
		c.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"wait"}}`, id))
	}
	for id := range maxCalls - 1 {
		wait(id)
	}
	wait(0)
	c.hear(fmt.Sprintf(`{"error":{"code":%d,"message":"a call with this id is under way"},"id":0,"jsonrpc":"2.0"}`, codeRequest))
	wait(maxCalls)
	wait(maxCalls + 1)
	c.hear(fmt.Sprintf(`{"error":{"code":%d,"message":"%d calls are under way: wait for one of them"},"id":%d,"jsonrpc":"2.0"}`, codeRequest, maxCalls, maxCalls+1))
	for _, id := range []string{"3", `{"x":`, `"3"`, "99"} {
		c.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id))
		if id == `{"x":` {
			c.hear(fmt.Sprintf(`{"error":{"code":%d,"message":"not JSON"},"id":null,"jsonrpc":"2.0"}`, codeParse))
		}
	}
	// The place is free once the call has noticed, and no answer comes for what was given up.
	for answer := ""; !strings.Contains(answer, "got {}"); {
		c.say(`{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"echo"}}`)
		var err error
		if answer, err = c.from.ReadString('\n'); err != nil || !strings.Contains(answer, `"id":50,`) {
			t.Fatal(answer, err)
		}
	}
	c.to.Close() // ends those that wait
	rest := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(c.from)
		rest <- string(all)
	}()
	select {
	case err := <-c.over:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("calls that nobody waits for go on")
	}
	if got := strings.Count(<-rest, `"text":"over"`); got != maxCalls-1 {
		t.Errorf("%d calls that were under way at the end were answered", got)
	}
}

// broken is a client that has gone away.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestClientGone(t *testing.T) {
	in := io.MultiReader(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"), neverEnds{})
	if err := tools().Serve(t.Context(), in, broken{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

// neverEnds would have a server read for ever.
type neverEnds struct{}

func (neverEnds) Read(p []byte) (int, error) { return copy(p, "\n"), nil }

// FuzzServe: whatever a client sends, each line that comes back is one message of JSON-RPC, and the server ends with it.
func FuzzServe(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"wait","_meta":{"progressToken":7}}}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n[]\n{}\nnull\n0"))
	f.Add([]byte(`{"id":1e999,"jsonrpc":"2.0","method":"ping"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var out strings.Builder
		if err := tools().Serve(t.Context(), strings.NewReader(string(in)), &out); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			var m struct {
				Version string          `json:"jsonrpc"`
				ID      json.RawMessage `json:"id"`
				Result  json.RawMessage `json:"result"`
				Error   json.RawMessage `json:"error"`
			}
			if err := json.Unmarshal([]byte(line), &m); err != nil || m.Version != "2.0" || m.ID == nil || (m.Result == nil) == (m.Error == nil) {
				t.Errorf("%q has the answer %s(%v)", in, line, err)
			}
		}
	})
}
