package mcp

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestMain is the server as well: a client starts it as a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("AGENT_INIT_TEST_SERVE") != "" {
		if tools().Serve(context.Background(), os.Stdin, os.Stdout) != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestOfficialClient: the client of the protocol's own SDK understands what is said, in each version that both speak.
func TestOfficialClient(t *testing.T) {
	for _, version := range append([]string{"", "2025-03-26"}, versions...) { // first the newest that it knows
		t.Run(version, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.Command(os.Args[0])
			cmd.Env, cmd.Stderr = append(os.Environ(), "AGENT_INIT_TEST_SERVE=1"), os.Stderr
			s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).
				Connect(ctx, &sdk.CommandTransport{Command: cmd}, &sdk.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error("it did not end in peace:", err)
				}
			}()
			if got := s.InitializeResult(); got.ServerInfo.Name != "test" || got.Instructions != "be good" || got.Capabilities.Tools == nil {
				t.Errorf("%+v", got)
			}
			if err := s.Ping(ctx, nil); err != nil {
				t.Error(err)
			}
			list, err := s.ListTools(ctx, nil)
			if err != nil || len(list.Tools) != 3 || list.Tools[0].Name != "echo" || !list.Tools[0].Annotations.ReadOnlyHint {
				t.Errorf("%+v, %v", list, err)
			}
			for name, want := range map[string]string{"echo": `got {"a":1}`, "fail": "no such luck"} {
				got, err := s.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: map[string]any{"a": 1}})
				if err != nil {
					t.Error(err)
					continue
				}
				if text, ok := got.Content[0].(*sdk.TextContent); !ok || text.Text != want || got.IsError != (name == "fail") {
					t.Errorf("%s: %+v", name, got.Content[0])
				}
			}
			if _, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "sh"}); err == nil {
				t.Error("a tool that there is not was called")
			}
			given, giveUp := context.WithTimeout(ctx, 200*time.Millisecond)
			defer giveUp()
			if _, err := s.CallTool(given, &sdk.CallToolParams{Name: "wait"}); err == nil {
				t.Error("a call that was given up has an answer")
			}
			if err := s.Ping(ctx, nil); err != nil {
				t.Error(err)
			}
		})
	}
}
