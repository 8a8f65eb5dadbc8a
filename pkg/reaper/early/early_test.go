package early

import (
	"os"
	"os/exec"
	"runtime"
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

const catchingVariable = "EARLY_TEST_CATCHING"

// TestMain is also the process of TestCaught, which sends itself all signals that it catches.
func TestMain(m *testing.M) {
	if os.Getenv(catchingVariable) == "" {
		os.Exit(m.Run())
	}
	Signals()
	runtime.LockOSThread()
	for _, sig := range forwardable() {
		if err := syscall.Tgkill(os.Getpid(), syscall.Gettid(), sig.(syscall.Signal)); err != nil { // delivered as it returns
			os.Exit(int(sig.(syscall.Signal)))
		}
	}
	os.Exit(0)
}

// TestCaught: what is caught neither ends nor stops the process.
func TestCaught(t *testing.T) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), catchingVariable+"=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
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
