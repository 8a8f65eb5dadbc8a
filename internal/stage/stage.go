// Package stage starts children of this binary without privileges, tells each what it needs, and judges it.
//
// A stage is the second half of a start: a fresh process of the same binary that gives up its privileges, proves
// it, and becomes the command. What it is to do is in the memfd that it inherits. It is root's until it has executed
// itself: before that it shares the keeper's memory (vfork in syscall.ForkExec), and another process of its uid could
// stop it, and the keeper with it.
package stage

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"slices"
	"syscall"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// The descriptors that a stage inherits, and a process of ours after it.
const (
	FDStage  = 3 // its order
	FDConfig = 4

	FDAlone = 4 // the first of Options.Files where there is no Config
	FDFiles = 5 // and where there is one
)

// Workspace is where the agent's work is.
const Workspace = "/workspace"

// Options say what to start through the stage. What it is told of them is its order.
type Options struct {
	Spec     privdrop.Spec `json:"spec"`
	Terminal bool          `json:"terminal,omitempty"` // a session of its own, on the terminal that is stdin
	Front    bool          `json:"front,omitempty"`    // take the foreground also if it is not ours to give
	Rank     Rank          `json:"rank,omitempty"`     // who goes first where memory is short

	Stdin      *os.File   `json:"-"` // nil: /dev/null
	Stdout     *os.File   `json:"-"`
	Stderr     *os.File   `json:"-"`
	Config     any        `json:"-"` // what Told reads, at descriptor 4; nil: nothing
	Files      []*os.File `json:"-"` // from the next descriptor on
	Foreground bool       `json:"-"`
	Agent      bool       `json:"-"` // part of the tree that is supervised; else a helper of the keeper's
}

// Spawn starts a process that holds no privilege by the time its command runs.
func Spawn(r *reaper.Reaper, o Options) (*reaper.Process, error) {
	files := o.Files
	if o.Config != nil {
		f, err := wire.Memfd("config", o.Config)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		files = append([]*os.File{f}, files...)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	std := []*os.File{cmp.Or(o.Stdin, null), cmp.Or(o.Stdout, null), cmp.Or(o.Stderr, null)}
	if len(files) > 0 {
		o.Spec.KeepFDs = 1 + len(files)
	}
	order, err := wire.Memfd("stage", o)
	if err != nil {
		return nil, err
	}
	defer order.Close()
	return r.Start(reaper.Command{
		Path: Self, Args: []string{"agent-init", Name}, Env: []string{}, Dir: "/", Files: slices.Concat(std, []*os.File{order}, files),
		Foreground: o.Foreground, Setsid: o.Terminal, Helper: !o.Agent,
	})
}

// Own is how a process of this binary runs that serves, under an identity of its own.
func Own(name string, uid, gid uint32, argv ...string) privdrop.Spec {
	return privdrop.Spec{
		Identity: privdrop.Identity{UID: uid, GID: gid, Name: "agent-init-" + name, Home: "/", Shell: "/nonexistent"},
		Argv:     append([]string{Self}, argv...), Env: []string{}, Dir: "/", Umask: 0o077, DenyUserNS: true,
	}
}

// Self is the file of this very program.
const Self = "/proc/self/exe"

// Kill signals a child, and says so where that fails.
func Kill(log *slog.Logger, p *reaper.Process, sig syscall.Signal) {
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		log.Warn("signalling", "pid", p.Pid(), "signal", sig, "error", err)
	}
}
