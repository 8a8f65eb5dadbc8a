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

const uncaughtVariable = "EARLY_TEST_UNCAUGHT"

func TestMain(m *testing.M) {
	switch os.Getenv(uncaughtVariable) {
	case "rest": // nothing is caught
		kill(func(sig os.Signal) bool { return !slices.Contains(drastic(), sig) })
	case "drastic":
		Signals()
		kill(func(os.Signal) bool { return true })
	default:
		os.Exit(m.Run())
	}
}

// kill sends this process all signals that it is to live through, and ends it.
func kill(which func(os.Signal) bool) {
	runtime.LockOSThread()
	for _, sig := range slices.DeleteFunc(forwardable(), func(sig os.Signal) bool { return !which(sig) }) {
		if err := syscall.Tgkill(os.Getpid(), syscall.Gettid(), sig.(syscall.Signal)); err != nil { // delivered as it returns
			os.Exit(int(sig.(syscall.Signal)))
		}
	}
	os.Exit(0)
}

// Until Rest was called, no signal but those that Signals takes has an effect; and with those, none has.
func TestRestCanWait(t *testing.T) {
	for _, which := range []string{"rest", "drastic"} {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), uncaughtVariable+"="+which)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", which, err, out)
		}
	}
}

// Whoever asks twice gets the same channel, with each signal once.
func TestSignals(t *testing.T) {
	signals := Signals()
	if Signals() != signals {
		t.Fatal("another channel")
	}
	Rest()
	Rest()
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
