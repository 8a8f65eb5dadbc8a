// Package client is what stands between a session, or the command of exec, and a person's terminal.
package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/internal/window"
	"github.com/agent-init/agent-init/pkg/session/attach"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

// Signals are those that a client on a person's terminal acts on.
func Signals() chan os.Signal {
	c := make(chan os.Signal, 64)
	signal.Notify(c, unix.SIGWINCH, unix.SIGCONT, unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT)
	return c
}

// Dial connects to the session server.
func Dial() (*os.File, error) {
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

// Call makes a request, and writes what it is answered.
func Call(r protocol.Request, to io.Writer) error {
	conn, err := Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err = attach.Call(conn, r, to); errors.Is(err, attach.ErrRefused) {
		return fault.New(fault.Failure, "see agent-init sessions", "%w", err)
	}
	return err
}

// Ask makes a request that is answered by a T.
func Ask[T any](r protocol.Request) (answer T, err error) {
	var b bytes.Buffer
	if err := Call(r, &b); err != nil {
		return answer, err
	}
	if err := json.Unmarshal(b.Bytes(), &answer); err != nil {
		return answer, fmt.Errorf("the session's answer: %w", err)
	}
	return answer, nil
}

func list() (protocol.Info, error) {
	return Ask[protocol.Info](protocol.Request{Verb: protocol.VerbList})
}

// Attach shows a window on a terminal until either ends, and says on w what became of it.
func Attach(w io.Writer, o attach.Options) error {
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

// Kill has the keeper end a window, and looks until it is gone.
func Kill(name string) error {
	before, err := list()
	if err != nil {
		return err
	}
	if err := Call(protocol.Request{Verb: protocol.VerbKill, Window: name}, io.Discard); err != nil {
		return err
	}
	w := slices.IndexFunc(before.Windows, func(w protocol.WindowInfo) bool { return w.Name == name || fmt.Sprint(w.ID) == name })
	if w < 0 {
		return nil // it was started, and ended, meanwhile
	}
	killed := before.Windows[w]
	same := func(w protocol.WindowInfo) bool { return w.ID == killed.ID && w.Started.Equal(killed.Started) }
	for end := time.Now().Add(window.KillAfter + 10*time.Second); ; time.Sleep(50 * time.Millisecond) {
		now, err := list()
		if err != nil || !slices.ContainsFunc(now.Windows, same) {
			return nil // with the last window the session ends
		}
		if time.Now().After(end) {
			return fault.New(fault.Failure, "end the container; the process waits for a device or a file system",
				"the program of window %s (pid %d) has not ended", name, killed.PID)
		}
	}
}
