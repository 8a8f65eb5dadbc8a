package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

func readFile(args []string) (detail, error) {
	a, err := parse(flags("read"), args, 1)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(a[0])
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buf := make([]byte, 64<<10)
	n, err := f.Read(buf)
	if n > 0 || err == nil || err.Error() == "EOF" {
		return detail{"data": string(buf[:n])}, nil
	}
	return nil, err
}

func writeFile(args []string) (detail, error) {
	fs := flags("write")
	data := fs.String("data", "poke\n", "")
	add := fs.Bool("append", false, "")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	mode := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if *add {
		mode = os.O_WRONLY | os.O_APPEND
	}
	f, err := os.OpenFile(a[0], mode, 0o644)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteString(*data); err != nil {
		return nil, err
	}
	return nil, f.Close()
}

func unixSocket(args []string) (detail, error) {
	var o options
	fs := flags("unix")
	o.register(fs, "")
	network := fs.String("type", "unix", "unix, unixgram or unixpacket")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	c, err := net.DialTimeout(*network, a[0], o.timeout)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	out := detail{}
	if o.send == "" {
		return out, nil
	}
	return out, exchange(c, []byte(o.send), o.timeout, out)
}

func self(args []string) (detail, error) {
	if _, err := parse(flags("self"), args, 0); err != nil {
		return nil, err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	fields := detail{}
	for line := range strings.Lines(string(status)) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			fields[k] = strings.TrimSpace(v)
		}
	}
	fds := detail{}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.HasSuffix(target, "/fd") || strings.Contains(target, "[event") || strings.Contains(target, "[pidfd]") {
			continue // the one that lists, and those of the Go runtime
		}
		fds[e.Name()] = target
	}
	return detail{"status": fields, "fds": fds, "env": os.Environ(), "pid": os.Getpid()}, nil
}

var syscalls = map[string]uintptr{
	"bpf": unix.SYS_BPF, "keyctl": unix.SYS_KEYCTL, "add_key": unix.SYS_ADD_KEY, "request_key": unix.SYS_REQUEST_KEY,
	"init_module": unix.SYS_INIT_MODULE, "finit_module": unix.SYS_FINIT_MODULE, "delete_module": unix.SYS_DELETE_MODULE,
	"kexec_load": unix.SYS_KEXEC_LOAD, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "userfaultfd": unix.SYS_USERFAULTFD,
	"io_uring_setup": unix.SYS_IO_URING_SETUP, "mount": unix.SYS_MOUNT, "umount2": unix.SYS_UMOUNT2, "pivot_root": unix.SYS_PIVOT_ROOT,
	"chroot": unix.SYS_CHROOT, "reboot": unix.SYS_REBOOT, "swapon": unix.SYS_SWAPON, "open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT,
	"unshare": unix.SYS_UNSHARE, "setns": unix.SYS_SETNS, "sethostname": unix.SYS_SETHOSTNAME, "ptrace": unix.SYS_PTRACE,
	"process_vm_readv": unix.SYS_PROCESS_VM_READV, "pidfd_getfd": unix.SYS_PIDFD_GETFD, "fsopen": unix.SYS_FSOPEN,
	"quotactl": unix.SYS_QUOTACTL, "acct": unix.SYS_ACCT, "syslog": unix.SYS_SYSLOG, "personality": unix.SYS_PERSONALITY,
}

func anySyscall(args []string) (detail, error) {
	a, err := parse(flags("syscall"), args, 1)
	if err != nil {
		return nil, err
	}
	nr, ok := syscalls[a[0]]
	if !ok {
		n, err := number(a[0])
		if err != nil {
			return nil, err
		}
		nr = uintptr(n)
	}
	var v [6]uintptr
	for i, s := range a[1:min(len(a), 7)] {
		n, err := number(s)
		if err != nil {
			return nil, err
		}
		v[i] = uintptr(n)
	}
	runtime.LockOSThread() // for good: the call may have changed the thread
	r, _, errno := unix.Syscall6(nr, v[0], v[1], v[2], v[3], v[4], v[5])
	if errno != 0 {
		return nil, os.NewSyscallError(a[0], errno)
	}
	return detail{"returned": r}, nil
}

func setuid(args []string) (detail, error) { return setID("setuid", args, syscall.Setuid) }
func setgid(args []string) (detail, error) { return setID("setgid", args, syscall.Setgid) }

func setID(name string, args []string, set func(int) error) (detail, error) {
	a, err := parse(flags(name), args, 1)
	if err != nil {
		return nil, err
	}
	n, err := number(a[0])
	if err != nil {
		return nil, err
	}
	return nil, os.NewSyscallError(name, set(n))
}

func kill(args []string) (detail, error) {
	a, err := parse(flags("kill"), args, 2)
	if err != nil {
		return nil, err
	}
	pid, err := number(a[0])
	if err != nil {
		return nil, err
	}
	sig := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(a[1]), "SIG"))
	if n, err := number(a[1]); err == nil {
		sig = syscall.Signal(n) // 0 included: only asks
	} else if sig == 0 {
		return nil, usage("unknown signal %q", a[1])
	}
	return nil, os.NewSyscallError("kill", unix.Kill(pid, sig))
}

func ptrace(args []string) (detail, error) {
	a, err := parse(flags("ptrace"), args, 1)
	if err != nil {
		return nil, err
	}
	pid, err := number(a[0])
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	if err := unix.PtraceSeize(pid); err != nil {
		return nil, os.NewSyscallError("ptrace", err)
	}
	return nil, nil // detached by exit
}

func vmWrite(args []string) (detail, error) {
	a, err := parse(flags("vmwrite"), args, 1)
	if err != nil {
		return nil, err
	}
	pid, err := number(a[0])
	if err != nil {
		return nil, err
	}
	b := []byte{0}
	local := []unix.Iovec{{Base: &b[0], Len: 1}}
	// An address that nobody has mapped: EFAULT says that we were let in.
	_, err = unix.ProcessVMWritev(pid, local, []unix.RemoteIovec{{Base: 16, Len: 1}}, 0)
	if err == unix.EFAULT {
		return nil, nil
	}
	return nil, os.NewSyscallError("process_vm_writev", err)
}

func getFD(args []string) (detail, error) {
	a, err := parse(flags("getfd"), args, 2)
	if err != nil {
		return nil, err
	}
	pid, err := number(a[0])
	if err != nil {
		return nil, err
	}
	target, err := number(a[1])
	if err != nil {
		return nil, err
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, target, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_getfd", err)
	}
	return nil, unix.Close(fd)
}

func nft(args []string) (detail, error) {
	if _, err := parse(flags("nft"), args, 0); err != nil {
		return nil, err
	}
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	tables, err := c.ListTables()
	out := detail{"tables": len(tables)}
	if err != nil {
		return out, fmt.Errorf("list tables: %w", err)
	}
	c.FlushRuleset()
	if err := c.Flush(); err != nil {
		return out, fmt.Errorf("flush ruleset: %w", err)
	}
	return out, nil
}

// hoard opens connections to a unix socket and holds them.
func hoard(args []string) (detail, error) {
	var o options
	fs := flags("hoard")
	o.register(fs, "")
	n := fs.Int("n", 100, "connections")
	hold := fs.Duration("hold", 5*time.Second, "how long")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	var failed error
	open := 0
	for range *n {
		c, err := net.DialTimeout("unix", a[0], o.timeout)
		if err == nil {
			defer c.Close()
			_, err = c.Write([]byte(o.send))
		}
		if err != nil {
			failed = err
			continue
		}
		open++
	}
	time.Sleep(*hold)
	return detail{"open": open}, failed
}
