package stage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// Waiting is a stage of the agent's that was started before the agent may be, so that nobody waits for the start of a
// process then. Until it is told what to become, it is root's, reads a pipe of the keeper's, and does nothing else. It
// ends if that is closed.
type Waiting struct {
	proc  *reaper.Process
	order *os.File
}

// tellTime is more than a stage takes to read its order.
const tellTime = 5 * time.Second

// Ahead starts one, on these as its standard input, output and error. None of them may be a terminal, whose foreground
// would be given away with it.
func Ahead(r *reaper.Reaper, stdin, stdout, stderr *os.File) (*Waiting, error) {
	order, told, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer order.Close()
	p, err := r.Start(command([]*os.File{stdin, stdout, stderr, order}))
	if err != nil {
		told.Close()
		return nil, err
	}
	return &Waiting{p, told}, nil
}

// Become tells it what it is to execute. After an error it executes nothing.
func (w *Waiting) Become(s privdrop.Spec) (*reaper.Process, error) {
	defer w.Forget()
	order, err := json.Marshal(Options{Spec: s}) // it ends with the brace without which nothing is decoded
	if err == nil {
		err = w.order.SetWriteDeadline(time.Now().Add(tellTime))
	}
	if err == nil {
		_, err = w.order.Write(order)
	}
	if err != nil {
		_ = w.proc.Signal(syscall.SIGKILL) // it would say that its order is broken
		return nil, fmt.Errorf("tell the stage what to execute: %w", err)
	}
	return w.proc, nil
}

// Forget ends it, if it was told nothing.
func (w *Waiting) Forget() { w.order.Close() }

// forgotten says whether err is that of one who waited for its order, and was told nothing.
func forgotten(order *os.File, err error) bool {
	st, unknown := order.Stat()
	return unknown == nil && st.Mode()&os.ModeNamedPipe != 0 && errors.Is(err, io.EOF)
}
