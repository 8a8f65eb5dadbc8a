package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// asked is what a client says that calls a tool.
type asked struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Meta      struct {
		Progress json.RawMessage `json:"progressToken"`
	} `json:"_meta"`
}

// call has a tool work, and answers when it has. Other messages are read meanwhile.
func (c *connection) call(ctx context.Context, m message) {
	var a asked
	if err := json.Unmarshal(m.Params, &a); err != nil {
		c.refuse(m.ID, codeParams, "tools/call says a name and arguments")
		return
	}
	i := slices.IndexFunc(c.Tools, func(t Tool) bool { return t.Name == a.Name })
	if i < 0 {
		c.refuse(m.ID, codeParams, "there is no such tool")
		return
	}
	if len(a.Arguments) == 0 || string(a.Arguments) == "null" {
		a.Arguments = json.RawMessage("{}")
	}
	if !isID(a.Meta.Progress) {
		a.Meta.Progress = nil
	}
	ctx, free, why := c.begin(ctx, string(m.ID))
	if why != "" {
		c.refuse(m.ID, codeRequest, why)
		return
	}
	c.working.Go(func() {
		ticking, stop := context.WithCancel(ctx)
		told := make(chan struct{})
		go func() {
			defer close(told)
			c.progress(ticking, a.Meta.Progress)
		}()
		text, err := c.Tools[i].Call(ctx, a.Arguments)
		givenUp := context.Cause(ctx) == errGivenUp
		stop()
		<-told // nothing is said of a call that was answered
		free()
		if givenUp {
			return // and wants no answer
		}
		if err != nil {
			text = err.Error()
		}
		c.reply(m.ID, map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}, "isError": err != nil})
	})
}

// begin takes a place for a call, or says why there is none. free gives the place back.
func (c *connection) begin(ctx context.Context, id string) (calling context.Context, free func(), why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.calls) >= maxCalls:
		return nil, nil, fmt.Sprintf("%d calls are under way: wait for one of them", maxCalls)
	case c.calls[id] != nil:
		return nil, nil, "a call with this id is under way"
	}
	calling, cancel := context.WithCancelCause(ctx)
	c.calls[id] = cancel
	return calling, func() {
		c.mu.Lock()
		delete(c.calls, id)
		c.mu.Unlock()
		cancel(nil)
	}, ""
}

// cancel ends the call that a client has given up. If it is over, so much the better.
func (c *connection) cancel(params json.RawMessage) {
	var p struct {
		ID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if end := c.calls[string(p.ID)]; end != nil {
		end(errGivenUp)
	}
}

// errGivenUp ends a call whose client has given it up.
var errGivenUp = errors.New("given up")

// progress tells a client that has given a token for it that its call goes on, until ctx ends.
func (c *connection) progress(ctx context.Context, token json.RawMessage) {
	if token == nil {
		return
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.write(map[string]any{"jsonrpc": "2.0", "method": "notifications/progress", "params": map[string]any{"progressToken": token, "progress": n}})
		}
	}
}
