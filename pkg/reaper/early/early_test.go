package early

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
)

func TestForwardable(t *testing.T) {
	list := forwardable()
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGWINCH, syscall.SIGPIPE,
		syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGSEGV, syscall.SIGABRT, syscall.Signal(35), syscall.Signal(64)} {
		if !slices.Contains(list, sig) {
			t.Errorf("%v is not forwarded", sig)
		}
	}
	for _, sig := range []os.Signal{syscall.SIGCHLD, syscall.SIGURG, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGKILL, syscall.SIGSTOP} {
		if slices.Contains(list, sig) {
			t.Errorf("%v is forwarded", sig)
		}
	}
}

// Whoever asks twice gets the same channel, with each signal once.
func TestSignals(t *testing.T) {
	signals := Signals()
	if Signals() != signals {
		t.Fatal("another channel")
	}
	defer Release()
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2} {
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-signals:
			if got != sig {
				t.Errorf("got %v, want %v", got, sig)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no %v", sig)
		}
	}
}
