package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// requireAll names all capabilities that are missing, so that one run is enough to learn of them.
func (b *base) requireAll(need []int) error {
	var names, reasons []string
	for _, c := range need {
		var missing *privdrop.CapabilityError
		if err := privdrop.Require(c); errors.As(err, &missing) {
			names = append(names, missing.Capability)
			reasons = append(reasons, missing.Capability+" to "+missing.Doing)
		} else if err != nil {
			return fault.New(fault.Privilege, "report this with the container's run line", "%w", err)
		}
	}
	switch len(names) {
	case 0:
		return nil
	case 1:
		return fault.New(fault.Privilege, b.launch.Capabilities(names...), "a capability is missing: %s", reasons[0])
	}
	return fault.New(fault.Privilege, b.launch.Capabilities(names...), "%d capabilities are missing: %s", len(names), strings.Join(reasons, ", "))
}

// warnOfEngines says what no packet filter sees: who can open an engine's socket is root on the machine.
func (b *base) warnOfEngines() {
	for _, s := range container.MountedSockets("/proc/self/mountinfo", b.config.Environ) {
		if container.IsEngineSocket(s) {
			fault.Warn(os.Stderr, fmt.Sprintf("%s is mounted: who can open an engine's socket is root on the machine, and is not confined", s), "remove the mount of "+s)
		}
	}
}

func alreadyKept(dir state.Dir, err error) *fault.Fault {
	because := ""
	if !errors.Is(err, unix.EWOULDBLOCK) {
		because = ": " + err.Error()
	}
	return fault.New(fault.Rules, "run agent-init only once; see agent-init status", "another agent-init keeps this container already (%s%s)", dir, because)
}

func (a *agent) warnOfAccount(err error) {
	if err == nil {
		return
	}
	var missing *privdrop.CapabilityError
	switch {
	case errors.As(err, &missing):
		fault.Warn(os.Stderr, fmt.Sprintf("the agent's home does not belong to it (uid %d), and can't be given to it: capability %s is missing", a.identity.UID, missing.Capability),
			a.launch.Capabilities(missing.Capability))
	case errors.Is(err, privdrop.ErrReadOnly):
		a.log.Warn("the agent's account is incomplete", "error", text.InOneLine(err)) // which most programs do without
	default:
		fault.Warn(os.Stderr, "the agent's account is incomplete: "+text.InOneLine(err), "make the home and the entry of uid "+fmt.Sprint(a.identity.UID)+" in the image")
	}
}

// warnOfWorkspace says that the agent can't write where it is to work, unless that is mounted read-only, on purpose.
func (a *agent) warnOfWorkspace(dir string) {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	if err := privdrop.MayWrite(a.identity, dir); !errors.Is(err, unix.EACCES) {
		return
	}
	cause, remedy := unwritable(a.launch, dir, a.identity.UID, st.Uid, a.config.HostUID)
	fault.Warn(os.Stderr, cause, remedy)
}

// warnOfProxy says that programs will ask a proxy that they don't reach. Docker puts these variables into containers by
// the proxies of its config.json.
func (a *agent) warnOfProxy() {
	p, env := a.book.policy(), maps.Clone(a.config.Environ)
	maps.Copy(env, p.Settings.Env)
	var names []string
	var to string
	for _, name := range container.ProxyVariables(env) {
		host, port := container.ProxyOf(env[name])
		if at := (policy.Port{Proto: policy.TCP, Number: port}); host != "" && !reaches(p, host, at) {
			names, to = append(names, name), cmp.Or(to, net.JoinHostPort(host, strconv.Itoa(int(port))))
		}
	}
	if len(names) == 0 {
		return
	}
	remedy := "take each out (" + a.launch.Variable(names[0], "") + "); if there is no other way out, policy.yaml has the proxy: upstream_proxy: http://" + to
	if p.Settings.UpstreamProxy.Host != "" {
		remedy = "take each out (" + a.launch.Variable(names[0], "") + "): agent-init asks its upstream proxy for every program"
	}
	fault.Warn(os.Stderr, fmt.Sprintf("programs will ask the proxy %s, which no entry allows: %s", text.Clean(to), strings.Join(names, ", ")), remedy)
}

func reaches(p *policy.Policy, host string, at policy.Port) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().IsLoopback() || p.DecideAddr(a, at).Allowed
	}
	return host == "localhost" || p.Decide(host, at).Allowed
}

// unwritable says why uid can't write in dir, which is owner's, and what to do.
func unwritable(l fault.Launch, dir string, uid, owner uint32, hostUID string) (cause, remedy string) {
	cause = fmt.Sprintf("the agent can't write in %s: it belongs to uid %d, and the agent is uid %d", dir, owner, uid)
	if hostUID != "" {
		cause += ", by HOST_UID=" + hostUID
	}
	hand := fmt.Sprintf("give the directory to the agent, on the host: chown -R %d DIR", uid)
	if l == fault.ByKubernetes {
		hand = fmt.Sprintf("securityContext: {fsGroup: %d} in the pod, for its volume", uid)
	}
	if owner == 0 || owner == uid { // the agent is never root; or its own may not write
		if owner == uid {
			hand = "let its owner write there: chmod u+wx DIR, on the host"
		}
		return cause, hand
	}
	return cause, l.Variable("HOST_UID", fmt.Sprint(owner)) + ", which makes the agent that user; or " + hand
}

// runProgram runs a program of the packet filter as a child of the reaper, which would else take its status from
// whoever waits for it. Files in memory take what it reads and writes: nobody has to keep pipes moving meanwhile.
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
	if _, err := files[0].WriteAt(p.Stdin, 0); err != nil { // which leaves the offset at its start
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
		if *out, err = io.ReadAll(io.NewSectionReader(files[i+1], 0, 64<<20)); err != nil {
			return nil, nil, err
		}
	}
	if ended.Code() != 0 {
		return stdout, stderr, errors.New(ended.String())
	}
	return stdout, stderr, nil
}

// giveStdio lets the agent open /dev/stdout and its terminal by name: the files were opened by root, and their rights
// are looked at again then. Files, and what belongs to another than root, are left alone.
//
// Giving a file to the agent would need CAP_CHOWN. Its owner may give it to one of the owner's own groups, though,
// and CAP_SETGID makes the agent's group one of those, for the time of the call and on one thread.
func giveStdio(gid uint32) {
	privdrop.OnThread(func() {
		list := []uint32{gid}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&list[0])), 0); errno != 0 {
			return
		}
		for fd := range 3 {
			var st unix.Stat_t
			if unix.Fstat(fd, &st) != nil || st.Uid != 0 {
				continue
			}
			// Of a pipe, only its own end. Who could read what the container says would take lines of ours,
			// the log's among them, away from whom they are for.
			var rights uint32
			switch {
			case ttyError(fd) == nil:
				rights = 0o060
			case !isPipe(fd):
				continue
			case fd == 0:
				rights = 0o040
			default:
				rights = 0o020
			}
			if unix.Fchown(fd, -1, int(gid)) == nil {
				_ = unix.Fchmod(fd, st.Mode&0o7777|rights)
			}
		}
	})
}

// ttyError is nil for a terminal, and EIO for one that is gone: every call on it fails so from then on.
func ttyError(fd int) error {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err
}

// hungUp says whether the terminal that we were started on is gone.
func hungUp() bool {
	return slices.ContainsFunc([]int{0, 1, 2}, func(fd int) bool { return ttyError(fd) == unix.EIO })
}

func isPipe(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.PIPEFS_MAGIC
}
