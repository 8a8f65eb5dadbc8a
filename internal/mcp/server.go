// Package mcp serves tools to a program that runs a model: the Model Context Protocol on standard input and output, one
// JSON-RPC message to a line (modelcontextprotocol.io, "Transports"). It is what three tools need of that, and no more.
//
// Who is at the other end may send anything, in any order: a message has a bounded size, calls at once have a limit, and
// what is wrong is answered, and not obeyed.
package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// The bounds of what a client may have us hold.
const (
	maxLine  = 64 << 10 // bytes of a message
	maxID    = 256      // bytes of its id
	maxCalls = 8        // tools that work at once
)

// progressEvery is how often a client that asks for it hears that a call goes on: clients give up on silent ones, some
// after a minute.
const progressEvery = 5 * time.Second

// versions are those of the protocol that are spoken, the newest first. That of 2025-03-26 is none: it has batches,
// which no client sends, and which the next version took back. Its clients speak the older one.
var versions = []string{"2025-11-25", "2025-06-18", "2024-11-05"}

// The codes of JSON-RPC 2.0, section 5.1.
const (
	codeParse    = -32700
	codeRequest  = -32600
	codeMethod   = -32601
	codeParams   = -32602
	codeInternal = -32603
)

// Server is what a client is told, and may call.
type Server struct {
	Name, Version string
	Instructions  string // for the model
	Tools         []Tool
}

// Tool is something that a model may call.
type Tool struct {
	Name        string
	Description string          // for the model
	Input       json.RawMessage // the JSON Schema of its arguments
	ReadOnly    bool            // it changes nothing

	// Call is called concurrently. An error is told to the model, as what the tool answers.
	Call func(ctx context.Context, arguments json.RawMessage) (text string, err error)
}

// message is what a client sends: a request has a method and an id, a notification has no id.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

// connection is one client.
type connection struct {
	*Server
	writing sync.Mutex
	out     io.Writer
	failed  error // writing has; nothing more is

	mu      sync.Mutex
	calls   map[string]context.CancelCauseFunc // that are under way, by their id
	working sync.WaitGroup
}

// Serve answers a client until in ends. Calls that are under way then end as soon as they can, and are answered: a shell
// that writes a few lines and closes its end hears what came of them.
func (s *Server) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &connection{Server: s, out: out, calls: map[string]context.CancelCauseFunc{}}
	lines := bufio.NewReaderSize(in, maxLine)
	for {
		line, err := readLine(lines)
		if errors.Is(err, errLong) {
			c.refuse(nil, codeRequest, fmt.Sprintf("a message has at most %d bytes", maxLine))
			continue
		}
		if len(bytes.TrimSpace(line)) > 0 {
			c.take(ctx, line)
		}
		if err == nil && c.broken() == nil {
			continue
		}
		cancel()
		c.working.Wait()
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return errors.Join(err, c.broken())
	}
}

var errLong = errors.New("too long")

// readLine returns the next line, which is good until the next call. One that is too long is passed over.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return line, err
	}
	for err == bufio.ErrBufferFull {
		_, err = r.ReadSlice('\n')
	}
	if err != nil {
		return nil, err
	}
	return nil, errLong
}

// take answers one message, or begins to.
func (c *connection) take(ctx context.Context, line []byte) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		if json.Valid(line) {
			c.refuse(nil, codeRequest, "a message is one object of JSON-RPC 2.0")
		} else {
			c.refuse(nil, codeParse, "not JSON")
		}
		return
	}
	switch {
	case m.ID == nil && m.Method == "notifications/cancelled":
		c.cancel(m.Params)
	case m.ID == nil || m.Method == "": // another notification, or an answer: we ask nothing
	case !isID(m.ID):
		c.refuse(nil, codeRequest, "an id is a string or a number, and short")
	case m.Version != "2.0":
		c.refuse(m.ID, codeRequest, "a message is one of JSON-RPC 2.0")
	default:
		c.answer(ctx, m)
	}
}

// isID says whether raw can be the id of a request: JSON has it valid already.
func isID(raw json.RawMessage) bool {
	if len(raw) == 0 || len(raw) > maxID {
		return false
	}
	first := raw[0]
	return first == '"' || first == '-' || first >= '0' && first <= '9'
}

func (c *connection) answer(ctx context.Context, m message) {
	switch m.Method {
	case "initialize":
		c.initialize(m)
	case "ping":
		c.reply(m.ID, struct{}{})
	case "tools/list":
		c.list(m.ID)
	case "tools/call":
		c.call(ctx, m)
	default:
		c.refuse(m.ID, codeMethod, "there is no such method here")
	}
}

func (c *connection) initialize(m message) {
	var asked struct {
		Version string `json:"protocolVersion"`
	}
	if err := json.Unmarshal(m.Params, &asked); err != nil {
		c.refuse(m.ID, codeParams, "initialize says a protocolVersion")
		return
	}
	version := versions[0]
	switch {
	case slices.Contains(versions, asked.Version):
		version = asked.Version
	case asked.Version < versions[0]: // their form is that of dates
		version = versions[len(versions)-1]
	}
	c.reply(m.ID, map[string]any{
		"protocolVersion": version,
		"capabilities":    map[string]any{"tools": struct{}{}},
		"serverInfo":      map[string]string{"name": c.Name, "version": c.Version},
		"instructions":    c.Instructions,
	})
}

func (c *connection) list(id json.RawMessage) {
	list := []any{}
	for _, t := range c.Tools {
		list = append(list, map[string]any{
			"name": t.Name, "description": t.Description, "inputSchema": t.Input,
			"annotations": map[string]bool{"readOnlyHint": t.ReadOnly, "destructiveHint": false, "openWorldHint": false},
		})
	}
	c.reply(id, map[string]any{"tools": list})
}

func (c *connection) reply(id json.RawMessage, result any) {
	c.write(map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
}

// refuse answers with an error of the protocol; without an id if that of the message can't be told.
func (c *connection) refuse(id json.RawMessage, code int, why string) {
	if id == nil {
		id = json.RawMessage("null")
	}
	c.write(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": why}})
}

// write sends one message: JSON has no line break in it.
func (c *connection) write(v any) {
	data, err := json.Marshal(v)
	c.writing.Lock()
	defer c.writing.Unlock()
	if err == nil && c.failed == nil {
		_, err = c.out.Write(append(data, '\n'))
	}
	if c.failed == nil {
		c.failed = err
	}
}

func (c *connection) broken() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.failed
}
