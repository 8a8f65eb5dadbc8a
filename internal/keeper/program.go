package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// maxOutput bounds what is read of a program's output, in bytes.
const maxOutput = 64 << 20

// runProgram runs a program of the packet filter as a child of the reaper, which
// would else take its status from whoever waits for it. Files in memory take
// what it reads and writes: nobody has to keep pipes moving meanwhile.
func (b *base) runProgram(ctx context.Context, p firewall.Program) (stdout, stderr []byte, err error) {
	var files [3]*os.File
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
		if err != nil {
			return nil, nil, fmt.Errorf("make a file in memory: %w", err)
		}
		files[i] = os.NewFile(uintptr(fd), name)
		defer files[i].Close()
	}
	if _, err := files[0].Write(p.Stdin); err != nil {
		return nil, nil, err
	}
	if _, err := files[0].Seek(0, io.SeekStart); err != nil {
		return nil, nil, err
	}
	child, err := b.reaper.Start(reaper.Command{
		Path: p.Path, Args: append([]string{p.Path}, p.Args...), Env: p.Env, Dir: "/", Files: files[:], Setsid: true, Helper: true,
	})
	if err != nil {
		return nil, nil, err
	}
	ended, err := child.Wait(ctx)
	if err != nil {
		_ = child.Signal(syscall.SIGKILL) // it may just have ended
		<-child.Done()
		return nil, nil, err
	}
	for i, out := range []*[]byte{&stdout, &stderr} {
		var b bytes.Buffer
		if _, err := b.ReadFrom(io.NewSectionReader(files[i+1], 0, maxOutput)); err != nil {
			return nil, nil, err
		}
		*out = b.Bytes()
	}
	if ended.Code() != 0 {
		return stdout, stderr, errors.New(ended.String())
	}
	return stdout, stderr, nil
}
