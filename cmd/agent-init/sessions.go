package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/window"
	"github.com/agent-init/agent-init/internal/window/client"
	"github.com/agent-init/agent-init/pkg/session/attach"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

func attachCommand() command {
	var r protocol.Request
	var key string
	return command{
		name: "attach", most: 1, takes: "one window", synopsis: "[-r] [WINDOW]",
		summary: "show a window of the session on this terminal; Ctrl-] d leaves, Ctrl-] ? helps",
		example: "docker exec -it CONTAINER /usr/local/bin/agent-init attach",
		flags: func(fs *flag.FlagSet) {
			fs.BoolVar(&r.Read, "r", false, "only look: what you type does not reach the window")
			fs.BoolVar(&r.Nested, "nested", false, "attach from inside of a window, too")
			fs.StringVar(&key, "prefix", "", "`KEY` before each command to the session: ctrl-] (the default) or another control character, or none")
		},
		run: func(_ context.Context, e environment, args []string) error {
			out, ok := e.stdout.(*os.File)
			switch {
			case !ok || !text.IsTerminal(e.stdin) || !text.IsTerminal(out):
				return fault.New(fault.Usage, "use docker exec -it, kubectl exec -it or ssh -t; agent-init history prints to a file", "attach needs a terminal")
			}
			env := container.Environ(e.env)
			prefix, err := prefixOf(key, env)
			if err != nil {
				return err
			}
			r.Window, r.Plain = first(args), env["TERM"] == "dumb"
			if inside := env[window.Variable]; inside != "" && !r.Nested {
				return fault.New(fault.Usage, "agent-init attach --nested, if that is what you want", "this is window %s of the session already", inside)
			}
			defer state.SayIfOpen(e.stderr)
			state.SayIfOpen(e.stderr)
			requests := client.Requests(nil)
			if os.Geteuid() == 0 && !r.Read {
				requests = client.Requests(client.AsRoot)
			}
			return client.Attach(e.stderr, attach.Options{
				Requests: requests, Dial: client.Dial, In: e.stdin, Out: out, Prefix: prefix, Signals: client.Signals(), Request: r, Again: fault.ComeBack(env, os.Getppid()),
			})
		},
	}
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func prefixOf(given string, env map[string]string) (attach.Prefix, error) {
	p, err := attach.ParsePrefix(cmp.Or(given, env[fault.EnvPrefix+"PREFIX"], attach.DefaultPrefix.Name()))
	if err != nil {
		return 0, fault.New(fault.Usage, "use --prefix ctrl-] or another control character", "the prefix key: %w", err)
	}
	return p, nil
}

func newCommand() command {
	return command{
		name: "new", most: -1, synopsis: "[NAME] -- [CMD ARG…]",
		summary: "start a command in a new window, confined as the agent is",
		example: "agent-init new tests -- npm test",
		run: func(_ context.Context, e environment, _ []string) error {
			args, argv := e.args[1:], []string(nil)
			if i := slices.Index(args, "--"); i >= 0 {
				args, argv = args[:i], args[i+1:]
			}
			if len(args) > 1 {
				return fault.New(fault.Usage, "agent-init new [NAME] -- [CMD ARG…]", "the command comes after --")
			}
			w, err := client.Ask[protocol.WindowInfo](protocol.Request{Verb: protocol.VerbNew, Name: first(args), Argv: argv})
			if err != nil {
				return err
			}
			fmt.Fprintf(e.stdout, "%d\n", w.ID)
			return nil
		},
	}
}

func historyCommand() command {
	r := protocol.Request{Verb: protocol.VerbHistory}
	return command{
		name: "history", most: 1, takes: "one window", synopsis: "[--styles] [WINDOW]",
		summary: "print what a window has shown: its scrollback, and the screen",
		example: "agent-init history main > log.txt",
		flags: func(fs *flag.FlagSet) {
			fs.BoolVar(&r.Styles, "styles", false, "print colours and other attributes, too")
		},
		run: func(_ context.Context, e environment, args []string) error {
			r.Window = first(args)
			return client.Call(r, e.stdout)
		},
	}
}

func killWindowCommand() command {
	return command{
		name: "kill", least: 1, most: 1, takes: "one window, of those that agent-init sessions lists", synopsis: "WINDOW",
		summary: "end the program of a window, and wait until it has ended",
		example: "agent-init kill tests",
		run: func(_ context.Context, _ environment, args []string) error {
			return client.Kill(args[0])
		},
	}
}

// terminalCommand is the client on the container's own terminal.
func terminalCommand() command {
	var key, again string
	var asks bool
	return command{
		name:    stage.TerminalName,
		summary: "shows the session on the container's terminal (started by agent-init itself)",
		flags: func(fs *flag.FlagSet) {
			fs.StringVar(&key, "prefix", "", "`KEY` that commands begin with")
			fs.StringVar(&again, "again", "", "`COMMAND` that attaches from elsewhere")
			fs.BoolVar(&asks, "answers", false, "what the agent asks for is answered here")
		},
		run: func(_ context.Context, e environment, _ []string) error {
			if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
				return err
			}
			conn := os.NewFile(stage.FDAlone, "session")
			out, ok := e.stdout.(*os.File)
			if conn == nil || !ok {
				return fault.New(fault.Usage, "use agent-init attach", "this client is started by agent-init itself")
			}
			prefix, err := prefixOf(key, nil)
			if err != nil {
				return err
			}
			var requests attach.Requests
			if asks {
				answers, err := client.OverChannel(os.NewFile(stage.FDAlone+1, "keeper"))
				if err != nil {
					return err
				}
				requests = client.Requests(answers)
			}
			_, err = attach.Run(attach.Options{
				Requests: requests, Dial: func() (*os.File, error) { return conn, nil }, In: e.stdin, Out: out, Prefix: prefix, Signals: client.Signals(),
				Local: true, Again: "Any key brings it back here; elsewhere:]\r\n  " + again,
			})
			switch {
			case errors.Is(err, attach.ErrTerminal):
				return fault.Status(fault.TerminalLost)
			case errors.Is(err, attach.ErrLost): // the session has ended, or another client follows
				return nil
			}
			return err
		},
	}
}

func sessionsCommand() command {
	return command{
		name: "sessions", synopsis: "[--json]", json: "print JSON",
		summary: "list the session's windows, and who looks at them",
		example: "agent-init sessions --json | jq '.windows[].name'",
		run: func(_ context.Context, e environment, _ []string) error {
			s, err := client.List()
			if err != nil {
				return err
			}
			return e.show(s, "      ", func(w io.Writer, _ bool) error { return s.Write(w, time.Now()) })
		},
	}
}
