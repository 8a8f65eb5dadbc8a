package keeper

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"syscall"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/window"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// agent owns the agent and its session. It is the same whether the network is confined or not.
type agent struct {
	*base
	book     *book
	identity privdrop.Identity
	guardUID uint32                                                             // 0: there is no guard
	broker   *brokerKeeper                                                      // nil: there is none
	reduced  bool                                                               // as gVisor needs it, see reducible
	session  *window.Session                                                    // nil: none
	decide   func(context.Context, control.Peer, control.Request) control.Reply // requests; nil: there are none
}

func (b *base) findAgent(k *book) (*agent, error) {
	spec := b.config.User
	if u := k.policy().Settings.User; spec == "auto" && u != "" {
		spec = u
	}
	id, err := privdrop.Lookup(privdrop.LookupOptions{
		Spec: spec, HostUID: b.config.HostUID, HostGID: b.config.HostGID, Workspace: stage.Workspace, Log: b.log,
	})
	if err != nil {
		return nil, fault.New(fault.Usage, "create the user in the image, or name one with --user", "%w", err)
	}
	a := &agent{base: b, book: k, identity: id}
	a.warnOfAccount(privdrop.EnsureAccount(id))
	a.warnOfWorkspace(stage.Workspace)
	a.warnOfProxy()
	b.update(func(s *state.State) { s.Agent.User, s.Agent.UID = id.Name, id.UID })
	return a, nil
}

// start starts the command with no privilege: in a session, or on what the container has for standard input and
// output. With a session, next is for reaper.Options.
func (a *agent) start(ctx context.Context, stdin *os.File, args []string, dir string) (p *reaper.Process, next func() *reaper.Process, err error) {
	argv := a.agentCommand(args)
	if a.config.wantsSession(stdin) {
		p, err = a.startSession(ctx, stdin, argv, dir)
		if err == nil {
			next = a.session.Next
		}
	} else {
		spec := a.spec()
		spec.Argv, spec.Dir = argv, dir
		giveStdio(a.identity.GID)
		p, err = stage.Spawn(a.reaper, stage.Options{
			Spec: spec, Stdin: stdin, Stdout: os.Stdout, Stderr: os.Stderr, Foreground: true, Agent: true,
		})
	}
	if err != nil {
		return nil, nil, err
	}
	a.record(audit.Event{Kind: audit.Session, Verdict: audit.Info, PID: p.Pid(), Comm: argv[0], Reason: "agent started as " + a.identity.Name})
	return p, next, nil
}

// hangUp is for reaper.Options.Forwarded. A shell that has begun too late to ignore a TERM has ended by it: only a look
// behind the TERM finds all that ignore it.
func (a *agent) hangUp(sig syscall.Signal) {
	if sig == syscall.SIGTERM && a.session != nil {
		go a.session.HangUp()
	}
}

func (a *agent) startSession(ctx context.Context, stdin *os.File, argv []string, dir string) (*reaper.Process, error) {
	asked := cmp.Or(a.book.policy().Settings.Env["TERM"], a.config.Environ["TERM"])
	term, known := container.Term(asked)
	if !known {
		fault.Warn(os.Stderr, "this image has no terminfo entry for "+text.Clean(asked)+", so windows have TERM="+term, "install it in the image (Debian: ncurses-term), or start with "+a.launch.Variable("TERM", term))
		term = "" // the default
	}
	s, err := window.New(a.sessionHost(term), dir)
	if err != nil {
		return nil, err
	}
	a.session = s
	a.book.notifier.attach(s)
	a.atEnd(func() error { s.Stop(); return nil })
	return s.Begin(ctx, argv, stdin, os.Stdout, os.Stderr)
}

func (a *agent) sessionHost(term string) window.Host {
	s := a.status()
	return window.Host{
		Log: a.log, LogLevel: a.config.level(), Reaper: a.reaper, Dir: a.dir, Identity: a.identity,
		Taken:        []uint32{a.guardUID, s.Broker.UID},
		SignalTarget: a.config.SignalTarget,
		Name:         a.config.SessionName, Term: term, Prefix: a.config.Prefix, Elsewhere: fault.AttachFromOutside(a.config.Environ),
		RecordTo: a.config.Record, RecordLimit: a.config.RecordLimit,
		Record: a.record, Update: a.update, Publish: a.publish, SocketOwners: firewall.SocketOwners, AgentSpec: a.spec, Shell: a.shell, Clipboard: a.clipboard, Diagnostics: a.diagnostics, Decide: a.decide,
	}
}

// agentCommand is the command line, else the policy's, else ASSISTANT_CMD through the shell, else the shell.
func (a *agent) agentCommand(args []string) []string {
	switch {
	case len(args) > 0:
		return args
	case len(a.book.policy().Settings.Command) > 0:
		return a.book.policy().Settings.Command
	case a.config.AssistantCmd != "":
		return []string{"/bin/sh", "-c", a.config.AssistantCmd}
	}
	return []string{a.shell()}
}

// shell is what a person gets who asks for no command.
func (a *agent) shell() string { return cmp.Or(a.config.Shell, a.identity.Shell, "/bin/sh") }

// spec is how the agent, and everything that runs like it, is confined.
func (a *agent) spec() privdrop.Spec {
	env, settings := maps.Clone(a.config.Environ), a.book.policy().Settings
	maps.Copy(env, settings.Env)
	a.broker.dress(env)
	s := a.status()
	if open := s.Open(); open != "" {
		signOfOpen(env, open)
	}
	spec := privdrop.Spec{
		Identity: a.identity, Dir: stage.Workspace,
		DenyUserNS: !settings.UserNamespaces || a.reduced, DenyPing: a.reduced, // as gVisor needs it, see reducible
		Nice: settings.Nice, ParentPID: parentPID(),
	}
	for k, v := range env {
		spec.Env = append(spec.Env, k+"="+v)
	}
	return spec
}

// parentPID is for privdrop.Spec: children of PID 1 are killed by the kernel anyway.
func parentPID() int {
	if pid := os.Getpid(); pid != 1 {
		return pid
	}
	return 0
}

// publishAgent writes how the agent is confined, for agent-init exec. Root
// alone can read it: the environment holds the agent's keys.
func (a *agent) publishAgent() error {
	if err := errors.Join(a.broker.publishFiles(a.identity.GID), a.broker.publishVariables(a.identity.GID)); err != nil {
		return err
	}
	spec := a.spec()
	spec.ParentPID = 0
	return a.dir.Write(state.AgentFile, 0o600, state.Confined{Spec: spec, Clipboard: a.clipboard()})
}

// clipboard reports whether programs may write the clipboard of who looks at them.
func (a *agent) clipboard() bool { return a.book.policy().Settings.Session.Clipboard }

// diagnostics is where a child may write: not on the agent's screen.
func (b *base) diagnostics() *os.File {
	if b.mode == "run" && text.IsTerminal(os.Stderr) {
		return nil
	}
	return os.Stderr
}
