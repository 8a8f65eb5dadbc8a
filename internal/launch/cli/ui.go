package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/launch"
	"github.com/agent-init/agent-init/internal/launch/ui"
	"github.com/agent-init/agent-init/internal/text"
)

// page serves the page until somebody ends it. The agents go on. The address is printed, and no browser is started by
// it: every user of the machine sees the arguments of a program.
func (l *Launch) page(ctx context.Context, s Streams, e launch.Engine, env map[string]string) error {
	dir, err := os.Getwd()
	if err != nil {
		return fault.New(fault.Failure, "go to a directory that is there", "%w", err)
	}
	server, err := ui.New(e, env, dir)
	if err != nil {
		return fault.New(fault.Failure, "see which addresses loopback has", "the page's port: %w", err)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	again := ""
	if s.terminal() {
		again = " Enter shows another."
	}
	fmt.Fprintf(text.Folded(s.Out, ""), "Open this in a browser on this machine. It is good for once.%s Ctrl-C ends the page; the agents go on.\n\n", again)
	fmt.Fprintf(s.Out, "  %s\n", server.Link())
	if s.terminal() {
		go func() {
			for lines := bufio.NewScanner(s.In); lines.Scan(); {
				fmt.Fprintf(s.Out, "  %s\n", server.Link())
			}
		}()
	}
	return server.Serve(ctx)
}
