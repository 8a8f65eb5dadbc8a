// Package tools is what mcp serves to a model: explain, request and status.
package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/internal/mcp"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/wire"
)

// Instructions are for the model.
const Instructions = "This container is confined by agent-init: an allowlist decides what can be reached. " +
	"A name that does not resolve, or a connection that is refused, is the policy's doing, not the network's. " +
	"Ask explain for the reason, and request for what the task needs: a person decides. Don't look for ways around."

// All are the tools. dir has the policy, where agent-init does not run.
func All(dir string) []mcp.Tool {
	return []mcp.Tool{explainTool(dir), requestTool(), statusTool()}
}

func explainTool(dir string) mcp.Tool {
	return mcp.Tool{
		Name: "explain", ReadOnly: true,
		Description: "Say why a host, an address or a URL is allowed or denied in this container, and what to do about it. Call it when a name does not resolve or a connection is refused.",
		Input: json.RawMessage(`{"type":"object","properties":{` +
			`"target":{"type":"string","description":"HOST, HOST:PORT, an address, or a URL"},` +
			`"method":{"type":"string","description":"the HTTP method, if target is a URL"}},` +
			`"required":["target"],"additionalProperties":false}`),
		Call: func(_ context.Context, arguments json.RawMessage) (string, error) {
			var a struct{ Target, Method string }
			if err := read(arguments, &a); err != nil {
				return "", err
			}
			said, err := inspect.ExplainText(dir, a.Method, a.Target)
			if err != nil {
				return "", toModel(err)
			}
			return said, nil
		},
	}
}

// How long the tool waits for a decision. Some programs give a tool a minute.
const (
	usualWait = 50
	maxWait   = 600
)

func requestTool() mcp.Tool {
	return mcp.Tool{
		Name: "request",
		Description: "Ask the person who runs this container to allow one host, and wait for the decision. " +
			"Nothing opens before the person agrees. Calling it again for the same target goes on waiting for the same request.",
		Input: json.RawMessage(`{"type":"object","properties":{` +
			`"target":{"type":"string","description":"HOST, HOST:PORT, or HOST METHOD /PATH"},` +
			`"reason":{"type":"string","description":"what the task needs it for, in one sentence"},` +
			fmt.Sprintf(`"wait_seconds":{"type":"integer","minimum":0,"maximum":%d,"description":"how long to wait for the decision; %d if not given"}},`, maxWait, usualWait) +
			`"required":["target","reason"],"additionalProperties":false}`),
		Call: func(ctx context.Context, arguments json.RawMessage) (string, error) {
			a := struct {
				Target, Reason string
				Wait           int `json:"wait_seconds"`
			}{Wait: usualWait}
			if err := read(arguments, &a); err != nil {
				return "", err
			}
			if a.Wait < 0 || a.Wait > maxWait {
				return "", fmt.Errorf("wait_seconds is from 0 to %d", maxWait)
			}
			out, err := inspect.Propose(context.WithoutCancel(ctx), a.Target, wire.PlainText(a.Reason)) // which takes no time
			if err == nil && a.Wait > 0 {
				waiting, cancel := context.WithTimeout(ctx, time.Duration(a.Wait)*time.Second)
				defer cancel()
				out, err = inspect.Await(waiting, out)
			}
			if err != nil {
				return "", toModel(err)
			}
			said := out.Says(time.Now())
			switch out.Outcome {
			case grant.StillWaits:
				said += "; call request again to wait longer, or do something else meanwhile"
			case grant.WasTurnedDown, grant.WasDenied:
				said += "; don't ask for it again, and don't look for a way around"
			}
			return said, nil
		},
	}
}

func statusTool() mcp.Tool {
	return mcp.Tool{
		Name: "status", ReadOnly: true,
		Description: "Say how this container is confined, and what became of requests.",
		Input:       json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`),
		Call: func(_ context.Context, arguments json.RawMessage) (string, error) {
			if err := read(arguments, &struct{}{}); err != nil {
				return "", err
			}
			var s state.State
			var r grant.Report
			if err := state.Published(state.StatusFile, &s); err != nil {
				return "", toModel(err)
			}
			if err := state.Published(state.GrantsFile, &r); err != nil {
				return "", toModel(err)
			}
			ok, why := s.Healthy(time.Now())
			var b strings.Builder
			s.Write(&b, ok, why, false)
			b.WriteByte('\n')
			err := r.Write(&b, time.Now())
			return b.String(), err
		},
	}
}

// read takes a tool's arguments, strictly: a word that is misspelt is told, and not passed over.
func read(arguments json.RawMessage, into any) error {
	d := json.NewDecoder(strings.NewReader(string(arguments)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return errors.New("the arguments don't fit the tool's schema: " + text.Clean(err.Error()))
	}
	return nil
}

// toModel is an error as a model may act on it: with its remedy.
func toModel(err error) error {
	f := fault.Of(err, "ask agent-init")
	if f.Remedy == "" {
		return errors.New(text.Clean(text.InOneLine(f)))
	}
	return fmt.Errorf("%s; remedy: %s", text.Clean(text.InOneLine(f)), f.Remedy)
}
