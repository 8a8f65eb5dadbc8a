package keeper

import (
	"context"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/reaper/early"
)

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
	b, err := newBase(c, mode, c.logger(os.Stderr, new(atomic.Bool)))
	if err != nil {
		return err
	}
	defer b.close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var up atomic.Pointer[keeper]
	go func() {
		for sig := range early.Signals() {
			switch sig {
			case syscall.SIGHUP:
				if k := up.Load(); k != nil && k.ready() {
					// By itself, or a signal to end would wait for it. Its error is in the log and the status.
					go func() { _ = k.reload(context.WithoutCancel(ctx)) }()
				}
			case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT:
				stop(ending(sig.(syscall.Signal)))
			}
		}
	}()
	b.progress = NewProgress(c, os.Stderr)
	if tell != nil {
		b.progress = &progress{Say: func(text string) { tell(Report{Say: text}) }}
	}
	k, err := b.boot(ctx)
	if err == nil {
		up.Store(k)
	}
	if tell != nil {
		tell(outcome(err))
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

// outcome says how a start went.
func outcome(err error) Report {
	if err == nil {
		return Report{}
	}
	f := fault.Of(err, "start the keeper")
	return Report{Code: f.Code, Cause: f.Error(), Remedy: f.Remedy}
}
