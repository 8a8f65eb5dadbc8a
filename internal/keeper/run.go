package keeper

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/window"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
	"github.com/agent-init/agent-init/pkg/reaper/early"
)

// Run confines the container, proves it, and runs the command under supervision.
func Run(ctx context.Context, c Config, stdin *os.File, stderr io.Writer, args []string) error {
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	if err := os.Chdir("/"); err != nil { // an init pins no directory
		return err
	}
	var muted atomic.Bool
	k, err := newKeeper(c, "run", c.logger(os.Stderr, &muted))
	if err != nil {
		return err
	}
	defer k.close()
	if k.progress = NewProgress(c, os.Stderr); k.progress != nil && k.wantsSession(stdin) {
		k.progress.keys = keysHint(c.Prefix)
	}

	signals := make(chan os.Signal, 1024)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	started := make(chan struct{})
	go k.receiveSignals(early.Signals(), stop, started, signals)

	if c.UnsafeNoFirewall {
		err = k.bootUnconfined(stderr)
	} else {
		err = k.boot(ctx)
	}
	if ended := endedBy(ctx); ended != 0 {
		return fault.Status(128 + int(ended))
	}
	if err != nil {
		return err
	}
	muted.Store(text.IsTerminal(os.Stderr))
	agent, next, err := k.startAgent(ctx, stdin, args, dir)
	if err != nil {
		f := fault.Of(err, "start the agent")
		k.fail(f)
		return f
	}
	close(started)
	st := k.reaper.Supervise(context.WithoutCancel(ctx), agent, reaper.Options{
		Signals: signals, Grace: c.Grace, Group: signalGroup(c.SignalTarget), Next: next, SignalFallback: stage.SignalAs,
	})
	k.record(audit.Event{Kind: audit.Session, Verdict: audit.Info, Reason: "agent ended: " + st.String()})
	k.update(func(s *state.State) {
		s.Phase, s.Reason, s.Code = state.PhaseEnded, "the agent ended: "+st.String(), st.Code()
	})
	k.publish()
	return fault.Status(st.Code())
}

// ending is the cause of a start that a signal cut short.
type ending syscall.Signal

func (s ending) Error() string { return "ended by " + syscall.Signal(s).String() }

func endedBy(ctx context.Context) syscall.Signal {
	if s, ok := context.Cause(ctx).(ending); ok {
		return syscall.Signal(s)
	}
	return 0
}

// receiveSignals hands every signal to exactly one taker, for as long as the
// process lives: HUP reloads the policy, unless it says that the terminal is
// gone, which the kernel tells the leader of the session alone; before the agent runs, a request to end
// cuts the start short; PIPE is the keeper's own; all others are the agent's. A request that comes when
// the start can't be cut short any more is the agent's too.
func (k *keeper) receiveSignals(received <-chan os.Signal, stop context.CancelCauseFunc, started <-chan struct{}, agent chan<- os.Signal) {
	running := false
	var late os.Signal
	hand := func(sig os.Signal) {
		if sig == syscall.SIGTERM && k.sessions != nil {
			go k.sessions.HangUp()
		}
		agent <- sig
	}
	for {
		select {
		case <-started:
			started, running = nil, true
			if late != nil {
				hand(late)
			}
		case sig := <-received:
			switch {
			case sig == syscall.SIGHUP && running && k.fw != nil && !hungUp():
				go func() { _ = k.reload(context.Background()) }() // its error is in the log and the status
			case sig == syscall.SIGHUP && running && k.sessions != nil && hungUp():
				// The container's terminal was lost. The session goes on.
			case sig == syscall.SIGPIPE:
				// Who asked the keeper has gone before the answer. It is nobody's end.
			case running:
				hand(sig)
			case slices.Contains([]os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP}, sig):
				late = sig
				stop(ending(sig.(syscall.Signal)))
			}
		}
	}
}

func signalGroup(target string) func(syscall.Signal) bool {
	switch target {
	case "group":
		return func(syscall.Signal) bool { return true }
	case "child":
		return func(syscall.Signal) bool { return false }
	}
	return nil // TERM, INT, HUP and QUIT to the group, the others to the child
}

// startAgent starts the command with no privilege: in a session, or on what the
// container has for standard input and output. With a session, next is for
// reaper.Options.
func (k *keeper) startAgent(ctx context.Context, stdin *os.File, args []string, dir string) (agent *reaper.Process, next func() *reaper.Process, err error) {
	argv := k.agentCommand(args)
	if k.wantsSession(stdin) {
		agent, err = k.startSession(ctx, stdin, argv, dir)
		if err == nil {
			next = k.sessions.Next
		}
	} else {
		spec := k.agentSpec()
		spec.Argv, spec.Dir = argv, dir
		giveStdio(k.identity.GID)
		agent, err = stage.Spawn(k.reaper, stage.Options{
			Spec: spec, Stdin: stdin, Stdout: os.Stdout, Stderr: os.Stderr, Foreground: true, Agent: true,
		})
	}
	if err != nil {
		return nil, nil, err
	}
	k.record(audit.Event{Kind: audit.Session, Verdict: audit.Info, PID: agent.Pid(), Comm: argv[0], Reason: "agent started as " + k.identity.Name})
	return agent, next, nil
}

// wantsSession: a program that is given its input or output by a pipe is to
// have just that.
func (k *keeper) wantsSession(stdin *os.File) bool {
	switch k.config.Session {
	case "always":
		return true
	case "auto":
		return text.IsTerminal(stdin) && text.IsTerminal(os.Stdout) && !window.InBackground(stdin)
	}
	return false
}

// startSession starts the command in the first window of a session.
func (k *keeper) startSession(ctx context.Context, stdin *os.File, argv []string, dir string) (*reaper.Process, error) {
	s, err := window.New(k.sessionHost(), dir)
	if err != nil {
		return nil, err
	}
	k.sessions = s
	return s.Begin(ctx, argv, stdin, os.Stdout, os.Stderr)
}

// sessionHost is what a session takes of the keeper.
func (k *keeper) sessionHost() window.Host {
	return window.Host{
		Log: k.log, LogLevel: k.config.level(), Reaper: k.reaper, Dir: k.dir, Identity: k.identity, GuardUID: k.guardUID,
		Name: k.config.SessionName, Term: k.config.Environ["TERM"], Prefix: k.config.Prefix, Elsewhere: fault.AttachFromOutside(k.config.Environ),
		RecordTo: k.config.Record, RecordLimit: k.config.RecordLimit,
		Record: k.record, Update: k.update, Publish: k.publish, AgentSpec: k.agentSpec, Shell: k.shell, Clipboard: k.clipboard, Diagnostics: k.diagnostics,
	}
}

// agentCommand is the command line, else the policy's, else ASSISTANT_CMD
// through the shell, else the shell.
func (k *keeper) agentCommand(args []string) []string {
	switch {
	case len(args) > 0:
		return args
	case k.policy != nil && len(k.policy.Settings().Command) > 0:
		return k.policy.Settings().Command
	case k.config.AssistantCmd != "":
		return []string{"/bin/sh", "-c", k.config.AssistantCmd}
	}
	return []string{k.shell()}
}

// shell is what a person gets who asks for no command.
func (k *keeper) shell() string {
	switch {
	case k.config.Shell != "":
		return k.config.Shell
	case k.identity.Shell != "":
		return k.identity.Shell
	}
	return "/bin/sh"
}

// agentSpec is how the agent, and everything that runs like it, is confined.
func (k *keeper) agentSpec() privdrop.Spec {
	env := maps.Clone(k.config.Environ)
	k.mu.Lock()
	p, open := k.policy, k.state.Open()
	k.mu.Unlock()
	if p != nil {
		maps.Copy(env, p.Settings().Env)
	}
	if open != "" {
		signOfOpen(env, open)
	}
	s := privdrop.Spec{Identity: k.identity, Env: environList(env), Dir: stage.Workspace}
	s.DenyUserNS = p != nil && !p.Settings().UserNamespaces
	if k.fw != nil && k.fw.Reduced() != "" {
		s.DenyUserNS, s.DenyPing = true, true // see reduced.go
	}
	if os.Getpid() != 1 {
		s.ParentPID = os.Getpid()
	}
	return s
}

// bootUnconfined is --unsafe-no-firewall: privileges are dropped all the same.
func (k *keeper) bootUnconfined(w io.Writer) error {
	red, plain := "\x1b[1;41;97m", "\x1b[0m"
	if k.config.NoColor {
		red, plain = "", ""
	}
	for _, line := range []string{
		"  --unsafe-no-firewall: THE NETWORK IS OPEN. The agent can send anything to anyone. ",
		"  Nothing is filtered, and nothing is logged.                                        ",
	} {
		fmt.Fprintf(w, "%s%s%s\n", red, line, plain)
	}
	ctx := context.Background()
	k.update(func(s *state.State) { s.Phase, s.Reason = state.PhaseOpen, "started with --unsafe-no-firewall" })
	for _, s := range []step{
		{name: "check the container", do: k.checkRoot}, {name: "find who could replace agent-init", do: k.checkProgramPath},
		{name: "prepare the runtime directory", do: k.openRuntime}, {name: "read the policy", do: k.loadPolicy},
		{name: "find the agent's user", do: k.findUser}, {name: "give up what is not needed", do: k.harden},
		{name: "publish how the agent is confined", do: func(context.Context) error { return k.publishAgent() }},
	} {
		if err := s.do(ctx); err != nil {
			f := fault.Of(err, s.name)
			k.fail(f)
			return f
		}
	}
	k.record(audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Reason: "NOT CONFINED: started with --unsafe-no-firewall"})
	k.publish()
	stage.Settle()
	return nil
}
