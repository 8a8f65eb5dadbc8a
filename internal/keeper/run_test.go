package keeper

import (
	"context"
	"os"
	"syscall"
	"testing"
)

// TestSignalsBeforeTheAgent: a request to end is never lost, also if it comes
// when the start can't be cut short any more; other signals before the agent
// are nobody's, and later ones the agent's.
func TestSignalsBeforeTheAgent(t *testing.T) {
	ctx, stop := context.WithCancelCause(context.Background())
	received, theirs, started := make(chan os.Signal), make(chan os.Signal, 10), make(chan running, 1)
	go receiveSignals(received, stop, started, theirs)
	received <- syscall.SIGUSR1
	if endedBy(ctx) != 0 {
		t.Error("USR1 cuts the start short")
	}
	received <- syscall.SIGTERM
	<-ctx.Done()
	if got := endedBy(ctx); got != syscall.SIGTERM {
		t.Errorf("ended by %v", got)
	}
	started <- running{agent: &agent{}} // the start had looked just before
	if got := <-theirs; got != syscall.SIGTERM {
		t.Errorf("the agent got %v", got)
	}
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGHUP} {
		received <- sig
		if got := <-theirs; got != sig {
			t.Errorf("the agent got %v, not %v", got, sig)
		}
	}
}
