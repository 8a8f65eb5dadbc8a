package stage

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// TestMain is the stage, too, and the parent of a program on a terminal, for what is started as Self.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == Name || os.Args[1] == ParentName) {
		var err error
		if os.Args[1] == Name {
			err = Run()
		} else {
			err = Parent(os.Args[7:], os.Args[3], os.Args[5])
		}
		if silent, is := errors.AsType[fault.Status](err); is {
			os.Exit(int(silent))
		}
		os.Exit(fault.Report(os.Stderr, err))
	}
	os.Exit(m.Run())
}

// TestAhead: whoever is told nothing ends, in silence, while the one who started it lives; and one that has ended
// becomes nothing.
func TestAhead(t *testing.T) {
	const own = "STAGE_TEST_OWN_PROCESS" // the reaper takes every child's end
	if os.Getenv(own) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestAhead$")
		cmd.Env = append(os.Environ(), own+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	r, err := reaper.New(slog.New(slog.DiscardHandler), privdrop.SignalAs)
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	out, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	forgotten, err := Ahead(r, null, null, stderr)
	stderr.Close()
	if err != nil {
		t.Fatal(err)
	}
	forgotten.Forget()
	if text, err := io.ReadAll(out); err != nil || len(text) > 0 || forgotten.proc.Status().Code() != fault.Failure {
		t.Errorf("%v, and said %q, %v", forgotten.proc.Status(), text, err)
	}

	killed, err := Ahead(r, null, null, null)
	if err == nil {
		err = killed.proc.Signal(syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
	killed.proc.Status()
	if _, err := killed.Become(privdrop.Spec{Argv: []string{"true"}}); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("it was told: %v", err)
	}
}
