package main

import (
	"context"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/inspect/tools"
	"github.com/agent-init/agent-init/internal/mcp"
)

func mcpCommand() command {
	return command{
		name:    "mcp",
		summary: "serve explain, request and status as tools to a model's program (MCP on stdio)",
		example: "claude mcp add agent-init -- agent-init mcp",
		run: func(ctx context.Context, e environment, _ []string) error {
			s := mcp.Server{Name: fault.Program, Version: version, Instructions: tools.Instructions, Tools: tools.All(defaultPolicyDir)}
			return s.Serve(ctx, e.stdin, e.stdout)
		},
	}
}
