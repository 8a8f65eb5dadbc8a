package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/session/attach"
)

// Answer asks the keeper for what a person has said.
type Answer func(sessionop.Verdict, attach.Asked) (control.Reply, error)

// Requests is how a client of the session shows what the agent asks for. Without answer, a person may only look.
func Requests(answer Answer) attach.Requests {
	r := attach.Requests{List: listAsked, Who: "Only root answers, and who sits at the container's own terminal: agent-init attach as root"}
	if answer != nil {
		r.Answer = func(a attach.Asked, v sessionop.Verdict) ([]string, error) {
			reply, err := answer(v, a)
			return cameOf(reply, err)
		}
	}
	return r
}

// AsRoot asks over root's socket.
func AsRoot(v sessionop.Verdict, a attach.Asked) (reply control.Reply, err error) {
	r, ok := ask.ForVerdict(v, a.Number, a.Target)
	if !ok {
		return reply, errors.New("this can't be answered")
	}
	var granted json.RawMessage
	err = ask.Call(context.Background(), ask.ControlSocket, r, &granted)
	return control.Reply{OK: err == nil, Data: granted}, err
}

// cameOf is what a person is shown of an answer.
func cameOf(reply control.Reply, err error) ([]string, error) {
	if err != nil {
		reply = ask.RefuseWith(fault.Of(err, "ask the keeper"))
	}
	if !reply.OK {
		return nil, fmt.Errorf("%s; remedy: %s", strings.ReplaceAll(reply.Error, "\n", "; "), reply.Remedy)
	}
	var g grant.Granted
	if err := json.Unmarshal(reply.Data, &g); err != nil {
		return []string{"done; see agent-init grants"}, nil
	}
	return g.Lines(), nil
}

// OverChannel asks over the channel that the keeper has given the client on the container's terminal.
func OverChannel(f *os.File) (Answer, error) {
	conn, err := wire.OpenPair(f)
	if err != nil {
		return nil, err
	}
	ch, turn := wire.Open(conn, sessionop.MaxText), make(chan struct{}, 1)
	return func(v sessionop.Verdict, a attach.Asked) (reply control.Reply, err error) {
		turn <- struct{}{} // one question at a time
		defer func() { <-turn }()
		m := wire.Message{Op: sessionop.Answer, Flag: uint8(v), ID: a.Number, Text: a.Target}
		if err = ch.Send(m, nil); err == nil {
			m, _, err = ch.Receive()
		}
		if err == nil {
			err = json.Unmarshal([]byte(m.Text), &reply)
		}
		if err != nil {
			err = fmt.Errorf("ask the keeper: %w", err)
		}
		return reply, err
	}, nil
}

// listAsked are the requests that wait or were decided, as the keeper publishes them.
func listAsked() (out []attach.Asked, err error) {
	var r grant.Report
	if err := state.Published(state.GrantsFile, &r); err != nil {
		return nil, err
	}
	for _, g := range r.Grants {
		if g.Kind != grant.Request {
			continue
		}
		a := attach.Asked{Number: g.Number, Target: g.Target, Reason: g.Reason, Since: g.Made, From: processOf(g.PID), Became: string(g.Outcome)}
		if g.Asked > 1 {
			a.From += ", " + text.Times(g.Asked)
		}
		if d := g.Decided; d != nil && a.Became != "" {
			a.Became += fmt.Sprintf(" by %s, %s", d.By(), text.Moment(d.Time, time.Now()))
		}
		out = append(out, a)
	}
	return out, nil
}

// processOf names a process, if it is still there. Its name is its own choice.
func processOf(pid int) string {
	if pid == 0 {
		return "a process"
	}
	name, _ := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "comm"))
	return strings.TrimSpace(fmt.Sprintf("pid %d %s", pid, cmp.Or(text.Clean(strings.TrimSpace(string(name))), "")))
}
