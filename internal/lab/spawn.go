package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/internal/lab/container"
	"github.com/agent-init/agent-init/internal/netns"
	"golang.org/x/sys/unix"
)

// Start runs a command as PID 1 of the box, in new namespaces, and returns
// when it has been executed. A box has one PID 1 at a time. It ends with the
// lab, and with this process however that ends.
func (b *Box) Start(c Cmd) *Process {
	b.lab.tb.Helper()
	p, err := b.tryStart(c)
	if err != nil {
		b.lab.tb.Fatalf("lab: start %v: %v", c.Args, err)
	}
	return p
}

// Run is Start and Wait.
func (b *Box) Run(c Cmd) Result {
	b.lab.tb.Helper()
	return b.Start(c).wait(c.Timeout)
}

// Idle starts a PID 1 that does nothing, to Exec beside.
func (b *Box) Idle() *Process {
	b.lab.tb.Helper()
	return b.Start(Cmd{Args: []string{"sleep", "infinity"}})
}

func (b *Box) tryStart(c Cmd) (*Process, error) {
	if p := b.running.get(); p != nil {
		select {
		case <-p.done:
		default:
			return nil, errors.New("the box is running already")
		}
	}
	proc, err := b.process(c)
	if err != nil {
		return nil, err
	}
	root, err := os.MkdirTemp(b.lab.dir, b.name+"-")
	if err != nil {
		return nil, err
	}
	tools := filepath.Join(b.lab.dir, "tools")
	binds := []Bind{{Source: tools, Target: container.ToolDir},
		{Source: filepath.Join(tools, "poke"), Target: "/usr/local/bin/poke"}}
	if b.opts.Binary != "" {
		binds = append(binds, Bind{Source: b.opts.Binary, Target: "/usr/local/bin/agent-init"})
	}
	spec := container.Spec{Root: root, Hostname: b.name, Files: b.image(), Mounted: b.etc(),
		Binds: append(binds, b.opts.Binds...), Tmpfs: b.opts.Tmpfs, ReadOnly: b.opts.ReadOnly,
		SysctlRW: b.opts.SysctlRW, Process: proc}
	net, err := b.Net.File()
	if err != nil {
		return nil, err
	}
	defer net.Close()
	p, err := prepare(c)
	if err != nil {
		return nil, err
	}
	p.cmd.Path, p.cmd.Args, p.cmd.Env = b.lab.Tool("labbox"), []string{"labbox", "init"}, []string{}
	h := &handover{cmd: p.cmd}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	// On the lab's own thread: the parent death signal comes when that ends.
	err = h.start(spec, func(start func() error) error { // it starts nothing before it has its spec
		return errors.Join(b.lab.spawner.do(start), b.group.add(p.cmd.Process))
	}, net)
	if err != nil {
		p.abandon()
		return nil, err
	}
	b.running.set(p)
	p.started()
	return p, h.executed()
}

// Exec runs a command in the running box as "docker exec" does: in the
// namespaces of its PID 1, with the box's bounding set, whatever PID 1 did to
// itself. What the command starts in the background lives on.
func (b *Box) Exec(c Cmd) Result {
	b.lab.tb.Helper()
	return b.ExecStart(c).wait(c.Timeout)
}

// TryExec is Exec where the box may have ended, or ends meanwhile.
func (b *Box) TryExec(c Cmd) (Result, error) {
	p, err := b.tryExec(c)
	if err != nil {
		return Result{}, fmt.Errorf("exec %v: %w", c.Args, err)
	}
	return p.wait(c.Timeout), nil
}

// ExecStart is Exec without waiting for the end.
func (b *Box) ExecStart(c Cmd) *Process {
	b.lab.tb.Helper()
	p, err := b.tryExec(c)
	if err != nil {
		b.lab.tb.Fatalf("lab: exec %v: %v", c.Args, err)
	}
	return p
}

func (b *Box) tryExec(c Cmd) (*Process, error) {
	init := b.running.get()
	if init == nil {
		return nil, errors.New("box isn't running")
	}
	select {
	case <-init.done:
		return nil, fmt.Errorf("PID 1 of the box has ended: %s", init.result)
	default:
	}
	proc, err := b.process(c)
	if err != nil {
		return nil, err
	}
	pidfd, err := unix.PidfdOpen(init.Pid(), 0)
	if err != nil {
		return nil, fmt.Errorf("open PID 1 of the box: %w", err)
	}
	defer unix.Close(pidfd)
	net, err := b.Net.File()
	if err != nil {
		return nil, err
	}
	defer net.Close()
	p, err := prepare(c)
	if err != nil {
		return nil, err
	}
	p.cmd.Args, p.cmd.Env = proc.Args, proc.Env
	if c.TTY != nil {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
	// A process of its own that becomes the command would take as long to start as most of what is tried.
	err = netns.OnThread(func() (err error) {
		// The mount namespace can be changed only by a task that shares
		// its filesystem context with no other (setns(2)).
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare filesystem context: %w", err)
		}
		const others = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
		if err := unix.Setns(pidfd, others); err != nil {
			return fmt.Errorf("enter the box: %w", err)
		}
		// Not that of PID 1: until it has become its command, this is the machine's.
		if err := unix.Setns(int(net.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the box's network: %w", err)
		}
		if p.cmd.Path, err = container.Assume(&proc); err != nil {
			return err
		}
		return p.cmd.Start()
	})
	if err == nil {
		err = b.group.add(p.cmd.Process)
	}
	if err != nil {
		p.abandon()
		return nil, err
	}
	p.started()
	return p, nil
}

// Kill ends PID 1 of the box, and so everything in it.
func (b *Box) Kill() {
	if err := b.kill(); err != nil {
		b.lab.tb.Errorf("lab: %v", err)
	}
}

func (b *Box) kill() error {
	p := b.running.get()
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", b.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(Patience):
		return fmt.Errorf("%s doesn't end", b.name)
	}
}

// handover gives labbox its spec and learns whether it executed the command.
type handover struct {
	cmd    *exec.Cmd
	status *os.File
}

// start starts labbox by do, with v and extra files as its descriptors.
func (h *handover) start(v any, do func(func() error) error, extra ...*os.File) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	specR, specW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer specR.Close()
	statusR, statusW, err := os.Pipe()
	if err != nil {
		specW.Close()
		return err
	}
	defer statusW.Close()
	h.status = statusR
	h.cmd.ExtraFiles = append([]*os.File{specR, statusW}, extra...)
	if err := do(h.cmd.Start); err != nil {
		specW.Close()
		statusR.Close()
		return err
	}
	go func() {
		defer specW.Close()
		_, _ = specW.Write(data) // a failure shows as labbox's
	}()
	return nil
}

// executed waits until the command has been executed, or says why it wasn't.
func (h *handover) executed() error {
	defer h.status.Close()
	msg, err := io.ReadAll(h.status)
	if err != nil {
		return fmt.Errorf("read status of labbox: %w", err)
	}
	if len(msg) > 0 {
		return errors.New(string(msg))
	}
	return nil
}

// spawner starts processes from one thread that lives as long as the lab.
type spawner struct {
	jobs chan func()
	once sync.Once
}

func newSpawner() *spawner {
	s := &spawner{jobs: make(chan func())}
	go func() {
		runtime.LockOSThread() // and never unlocked
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

func (s *spawner) do(fn func() error) error {
	errc := make(chan error, 1)
	s.jobs <- func() { errc <- fn() }
	return <-errc
}

func (s *spawner) close() error {
	s.once.Do(func() { close(s.jobs) })
	return nil
}

// current is the process that is PID 1 now.
type current struct {
	mu sync.Mutex
	p  *Process
}

func (c *current) get() *Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.p
}

func (c *current) set(p *Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.p = p
}

// capNames is in the order of the kernel's numbers (capabilities(7)).
const capNames = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP " +
	"LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE " +
	"SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME " +
	"SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG " +
	"WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"

func capNumbers(names []string) ([]uint64, error) {
	if names == nil {
		names = DefaultCaps()
	}
	known := strings.Fields(capNames)
	numbers := []uint64{}
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, fmt.Errorf("unknown capability %q", name)
		}
		numbers = append(numbers, uint64(i))
	}
	return numbers, nil
}
