package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/window"
	"github.com/agent-init/agent-init/pkg/session/attach"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

func attachCommand() command {
	var r protocol.Request
	var key string
	return command{
		name: "attach", synopsis: "[-r] [WINDOW]",
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
			case len(args) > 1:
				return fault.New(fault.Usage, "agent-init attach [WINDOW]", "one window at a time")
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
			requests := requestsFor(nil)
			if os.Geteuid() == 0 && !r.Read {
				requests = requestsFor(rootAnswers)
			}
			return attached(e.stderr, attach.Options{
				Requests: requests, Dial: dialSession, In: e.stdin, Out: out, Prefix: prefix, Signals: clientSignals(), Request: r, Again: fault.ComeBack(env, os.Getppid()),
			})
		},
	}
}

func attached(w io.Writer, o attach.Options) error {
	r, err := attach.Run(o)
	switch {
	case errors.Is(err, attach.ErrRefused):
		return fault.New(fault.Failure, "see agent-init sessions", "%w", err)
	case errors.Is(err, attach.ErrLost):
		return fault.New(fault.Failure, "agent-init attach, if the session still runs", "%w", err)
	case err != nil:
		return err
	case r.Detached:
		fmt.Fprintf(w, "[detached from window %s; the session goes on. To come back:]\n  %s %[1]s\n", r.Window, o.Again)
		return nil
	}
	fmt.Fprintf(w, "[window %s has ended: exit %d]\n", r.Window, r.Code)
	return fault.Status(r.Code)
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

func clientSignals() chan os.Signal {
	c := make(chan os.Signal, 64)
	signal.Notify(c, unix.SIGWINCH, unix.SIGCONT, unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT)
	return c
}

func dialSession() (*os.File, error) {
	dir, err := state.Find()
	if err != nil {
		return nil, state.NotRunning(err)
	}
	f, err := attach.Dial(filepath.Join(string(dir), ask.SessionSocket))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fault.New(fault.Failure, "start the container with -it, or with AGENT_INIT_SESSION=always in its environment (docker: -e)", "there is no session")
	case errors.Is(err, os.ErrPermission):
		return nil, fault.New(fault.Privilege, "use docker exec -u root, or the agent's user", "only root and the agent's user may use the session")
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, fault.New(fault.Failure, "agent-init sessions shows whether there is another", "the session has ended")
	}
	return f, err
}

func callSession(r protocol.Request, to io.Writer) error {
	conn, err := dialSession()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err = attach.Call(conn, r, to); errors.Is(err, attach.ErrRefused) {
		return fault.New(fault.Failure, "see agent-init sessions", "%w", err)
	}
	return err
}

func askSession[T any](r protocol.Request) (answer T, err error) {
	var b bytes.Buffer
	if err := callSession(r, &b); err != nil {
		return answer, err
	}
	if err := json.Unmarshal(b.Bytes(), &answer); err != nil {
		return answer, fmt.Errorf("the session's answer: %w", err)
	}
	return answer, nil
}

func listSession() (protocol.Info, error) {
	return askSession[protocol.Info](protocol.Request{Verb: protocol.VerbList})
}

func newCommand() command {
	return command{
		name: "new", synopsis: "[NAME] -- [CMD ARG…]",
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
			w, err := askSession[protocol.WindowInfo](protocol.Request{Verb: protocol.VerbNew, Name: first(args), Argv: argv})
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
		name: "history", synopsis: "[--styles] [WINDOW]",
		summary: "print what a window has shown: its scrollback, and the screen",
		example: "agent-init history main > log.txt",
		flags: func(fs *flag.FlagSet) {
			fs.BoolVar(&r.Styles, "styles", false, "print colours and other attributes, too")
		},
		run: func(_ context.Context, e environment, args []string) error {
			if len(args) > 1 {
				return fault.New(fault.Usage, "agent-init history [WINDOW]", "one window at a time")
			}
			r.Window = first(args)
			return callSession(r, e.stdout)
		},
	}
}

func killWindowCommand() command {
	return command{
		name: "kill", synopsis: "WINDOW",
		summary: "end the program of a window, and wait until it has ended",
		example: "agent-init kill tests",
		run: func(_ context.Context, _ environment, args []string) error {
			if len(args) != 1 {
				return fault.New(fault.Usage, "agent-init kill WINDOW; agent-init sessions lists them", "which window?")
			}
			return killWindow(args[0])
		},
	}
}

// killWindow has the keeper end a window, and looks until it is gone.
func killWindow(name string) error {
	before, err := listSession()
	if err != nil {
		return err
	}
	if err := callSession(protocol.Request{Verb: protocol.VerbKill, Window: name}, io.Discard); err != nil {
		return err
	}
	w := slices.IndexFunc(before.Windows, func(w protocol.WindowInfo) bool { return w.Name == name || fmt.Sprint(w.ID) == name })
	if w < 0 {
		return nil // it was started, and ended, meanwhile
	}
	killed := before.Windows[w]
	same := func(w protocol.WindowInfo) bool { return w.ID == killed.ID && w.Started.Equal(killed.Started) }
	for end := time.Now().Add(window.KillAfter + 10*time.Second); ; time.Sleep(50 * time.Millisecond) {
		now, err := listSession()
		if err != nil || !slices.ContainsFunc(now.Windows, same) {
			return nil // with the last window the session ends
		}
		if time.Now().After(end) {
			return fault.New(fault.Failure, "end the container; the process waits for a device or a file system",
				"the program of window %s (pid %d) has not ended", name, killed.PID)
		}
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
				answers, err := terminalAnswers(os.NewFile(stage.FDAlone+1, "keeper"))
				if err != nil {
					return err
				}
				requests = requestsFor(answers)
			}
			_, err = attach.Run(attach.Options{
				Requests: requests, Dial: func() (*os.File, error) { return conn, nil }, In: e.stdin, Out: out, Prefix: prefix, Signals: clientSignals(),
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
		name: "sessions", alone: true, synopsis: "[--json]", json: "print JSON",
		summary: "list the session's windows, and who looks at them",
		example: "agent-init sessions --json | jq '.windows[].name'",
		run: func(_ context.Context, e environment, _ []string) error {
			i, err := listSession()
			if err != nil {
				return err
			}
			cleanSession(&i)
			return e.show(sessionsReport{1, i}, "      ", func(w io.Writer, _ bool) error { return writeSessions(w, i, time.Now()) })
		},
	}
}

type sessionsReport struct { // of --json
	Version int `json:"version"`
	protocol.Info
}

const maxShownTitle = 40 // characters

// cleanSession takes out of what programs chose what could make a line look like another.
func cleanSession(i *protocol.Info) {
	for n := range i.Windows {
		w := &i.Windows[n]
		w.Title, w.Cwd = text.Clean(w.Title), text.Clean(w.Cwd)
	}
}

// shownTitle is a title in quotes, so that it is not taken for words of ours.
func shownTitle(title string) string {
	runes := []rune(text.Clean(title))
	if len(runes) == 0 {
		return ""
	}
	if len(runes) > maxShownTitle {
		runes = append(runes[:maxShownTitle-1], '…')
	}
	return strconv.QuoteToGraphic(string(runes))
}

func writeSessions(to io.Writer, i protocol.Info, now time.Time) error {
	fmt.Fprintf(to, "session %s\n", text.Clean(i.Name))
	table := text.NewTable(" NO", "NAME", "SIZE", "PROCESS", "SINCE", "TITLE")
	for _, x := range i.Windows {
		table.Row(fmt.Sprint(x.ID), text.Clean(x.Name), sized(x.Cols, x.Rows), fmt.Sprintf("pid %d", x.PID), text.Moment(x.Started, now), shownTitle(x.Title))
		for _, c := range x.Clients {
			who, how := fmt.Sprintf("uid %d, pid %d", c.UID, c.PID), ""
			if c.PID == 0 {
				who = "the container's terminal"
			}
			if c.Read {
				how = ", read-only"
			}
			if c.Leader && len(x.Clients) > 1 {
				how += ", typed last"
			}
			table.Note(fmt.Sprintf("attached: %s%s, %s, since %s", who, how, sized(c.Cols, c.Rows), text.Moment(c.Attached, now)))
		}
	}
	return table.Write(to)
}

func sized(cols, rows int) string {
	if cols == 0 || rows == 0 {
		return "-"
	}
	return fmt.Sprintf("%dx%d", cols, rows)
}
