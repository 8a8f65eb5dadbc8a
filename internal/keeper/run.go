package keeper

import (
	"context"
	"io"
	"math"
	"os"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
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
	log, level := c.logger(os.Stderr)
	b, err := newBase(c, "run", log)
	if err != nil {
		return err
	}
	defer b.close()
	received := early.Signals() // before the first fork: what is caught is not ignored in a child
	if b.progress = NewProgress(c, os.Stderr); b.progress != nil && c.wantsSession(stdin) {
		b.progress.keys = c.KeysHint
	}

	signals := make(chan os.Signal, 1024)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	started := make(chan running, 1)
	go receiveSignals(received, stop, started, signals)

	var up running
	if c.UnsafeNoFirewall {
		up.agent, err = b.bootUnconfined(ctx, stderr)
	} else {
		var k *keeper
		if k, err = b.boot(ctx); err == nil {
			up = running{k.agent, k.reload}
		}
	}
	if ended := endedBy(ctx); ended != 0 {
		return fault.Status(128 + int(ended))
	}
	if err != nil {
		return err
	}
	if text.IsTerminal(os.Stderr) {
		level.Set(math.MaxInt)
	}
	agent, next, err := up.agent.start(ctx, stdin, args, dir)
	if err != nil {
		return b.fail(fault.Of(err, "start the agent"))
	}
	started <- up
	st := b.reaper.Supervise(agent, reaper.Options{
		Signals: signals, Grace: c.Grace, Group: stage.SignalGroups[c.SignalTarget], Forwarded: up.agent.hangUp, Next: next,
	})
	ended := "agent ended: " + st.String()
	b.record(audit.Event{Kind: audit.Session, Verdict: audit.Info, Reason: ended})
	b.update(func(s *state.State) { s.Phase, s.Reason, s.Code = state.PhaseEnded, "the "+ended, st.Code() })
	b.publish()
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

// running is what signals are for, once the agent runs.
type running struct {
	agent  *agent
	reload func(context.Context) error // nil: there is no policy in force, see bootUnconfined
}

// receiveSignals hands every signal to exactly one taker, for as long as the process lives: HUP reloads the policy,
// unless it says that the terminal is gone, which the kernel tells the leader of the session alone; before the agent
// runs, a request to end cuts the start short; PIPE is the keeper's own; all others are the agent's. A request that
// comes when the start can't be cut short any more is the agent's too.
func receiveSignals(received <-chan os.Signal, stop context.CancelCauseFunc, started <-chan running, agent chan<- os.Signal) {
	var up running
	var late os.Signal
	for {
		select {
		case up = <-started:
			if late != nil {
				agent <- late
			}
		case sig := <-received:
			running := up.agent != nil
			switch {
			case sig == syscall.SIGHUP && running && up.reload != nil && !hungUp():
				go func() { _ = up.reload(context.Background()) }() // its error is in the log and the status
			case sig == syscall.SIGHUP && running && up.agent.session != nil && hungUp():
				// The container's terminal was lost. The session goes on.
			case sig == syscall.SIGPIPE:
				// Who asked the keeper has gone before the answer. It is nobody's end.
			case running:
				agent <- sig
			case slices.Contains([]os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP}, sig):
				late = sig
				stop(ending(sig.(syscall.Signal)))
			}
		}
	}
}

// bootUnconfined is --unsafe-no-firewall: privileges are dropped all the same.
func (b *base) bootUnconfined(ctx context.Context, w io.Writer) (*agent, error) {
	announceOpen(w, b.config.NoColor, "\x1b[1;41;97m",
		"  --unsafe-no-firewall: THE NETWORK IS OPEN. The agent can send anything to anyone. ",
		"  Nothing is filtered, and nothing is logged.                                        ")
	b.update(func(s *state.State) { s.Phase, s.Reason = state.PhaseOpen, "started with --unsafe-no-firewall" })
	s := &starting{base: b, ctx: ctx}
	root := then(s, "check the container", "", func(context.Context, struct{}) (fit, error) { return fit{}, b.checkRoot() }, struct{}{})
	safe := then(s, "find who could replace agent-init", "", b.checkProgramPath, root)
	home := then(s, "prepare the runtime directory", "", func(_ context.Context, e examined) (examined, error) { return e, b.takeDir() }, safe)
	told := then(s, "read the policy", "", func(context.Context, examined) (*book, error) {
		return b.readFirst(b.findServers(false), func(*policy.Policy) error { return nil }, hindrance{"there is no broker with --unsafe-no-firewall", "leave out --unsafe-no-firewall, or have the agent hold the key: take the route out of policy.yaml"})
	}, home)
	a := then(s, "find the agent's user", "", func(_ context.Context, k *book) (*agent, error) { return b.findAgent(k) }, told)
	a = then(s, "give up what is not needed", "", func(context.Context, *agent) (*agent, error) { return a, b.giveUp(keeperCaps) }, a)
	then(s, "publish how the agent is confined", "", func(context.Context, *agent) (*agent, error) { return a, a.publishAgent() }, a)
	if s.err != nil {
		return nil, s.err
	}
	b.guardian(audit.Fault, "NOT CONFINED: started with --unsafe-no-firewall")
	b.publish()
	stage.Settle(stage.ServerThreads)
	return a, nil
}

// Report is what the detached keeper says to who started it: progress, and
// in the end, without a word to say, how it went.
type Report struct {
	Say           string
	Code          int
	Cause, Remedy string
}

// Keep confines the namespace and keeps it so until it is told to end.
// The rules stay when it does. A detached keeper tells who started it, if tell is not nil.
func Keep(ctx context.Context, c Config, mode string, tell func(Report)) error {
	log, _ := c.logger(os.Stderr)
	b, err := newBase(c, mode, log)
	if err != nil {
		return err
	}
	defer b.close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var up atomic.Pointer[keeper]
	go heed(stop, func() {
		if k := up.Load(); k != nil && k.ready() {
			_ = k.reload(context.WithoutCancel(ctx)) // its error is in the log and the status
		}
	})
	b.progress = NewProgress(c, os.Stderr)
	if tell != nil {
		b.progress = &progress{Say: func(text string) { tell(Report{Say: text}) }}
	}
	k, err := b.boot(ctx)
	if err == nil {
		up.Store(k)
	}
	if tell != nil {
		var how Report
		if err != nil {
			f := fault.Of(err, "start the keeper")
			how = Report{Code: f.Code, Cause: f.Error(), Remedy: f.Remedy}
		}
		tell(how)
	}
	if err != nil {
		if ended := endedBy(ctx); ended != 0 {
			return fault.Status(128 + int(ended))
		}
		return err
	}
	<-ctx.Done()
	k.update(func(s *state.State) {
		s.Phase, s.Reason = state.PhaseEnded, "the keeper was told to end; the rules stay"
	})
	k.endGrants(context.WithoutCancel(ctx))
	k.publish()
	return nil
}

// heed has reload called at each SIGHUP, and stop at a signal to end.
func heed(stop context.CancelCauseFunc, reload func()) {
	for sig := range early.Signals() {
		switch sig {
		case syscall.SIGHUP:
			go reload() // by itself, or a signal to end would wait for it
		case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT:
			stop(ending(sig.(syscall.Signal)))
		}
	}
}
