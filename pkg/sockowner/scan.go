package sockowner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Process is one that has a socket open.
type Process struct {
	PID  int
	Name string // what it calls itself, up to 15 bytes of any kind
}

// Scanner looks through the open files of one user's processes.
type Scanner struct {
	busy  sync.Mutex
	asked chan uint32 // an inode
	found chan Process
}

// How many processes and open files one look may take: many times what an agent at work has, and some milliseconds.
const (
	maxPIDs  = 2048
	maxLinks = 8192
)

// NewScanner returns a Scanner of the processes of uid and gid. The caller may be root without CAP_SYS_PTRACE: the
// kernel lets a thread look at the open files of processes whose ids its own file system ids are (proc(5), ptrace(2)),
// and the Scanner has such a thread, without any capability. These processes can't reach it with a signal, since its
// other ids stay as they are. It lives as long as the program.
func NewScanner(uid, gid uint32) (*Scanner, error) {
	s := &Scanner{asked: make(chan uint32), found: make(chan Process)}
	began := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: nothing else may run with these ids
		err := become(uid, gid)
		began <- err
		if err != nil {
			return
		}
		for inode := range s.asked {
			s.found <- scan(inode)
		}
	}()
	if err := <-began; err != nil {
		return nil, fmt.Errorf("look at processes of uid %d: %w", uid, err)
	}
	return s, nil
}

func become(uid, gid uint32) error {
	if err := errors.Join(unix.Setfsgid(int(gid)), unix.Setfsuid(int(uid))); err != nil {
		return err
	}
	// A failure is not reported (setfsuid(2)); asking for no id tells the present one.
	nowGID, _ := unix.SetfsgidRetGid(-1)
	if nowUID, _ := unix.SetfsuidRetUid(-1); uint32(nowUID) != uid || uint32(nowGID) != gid {
		return fmt.Errorf("the file system ids are %d:%d: %w", nowUID, nowGID, unix.EPERM)
	}
	var none [2]unix.CapUserData
	return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
}

// Holder returns a process that has the socket open, the youngest of several. If
// there is none that can be seen, ok is false. One looks at a time.
func (s *Scanner) Holder(inode uint32) (p Process, ok bool) {
	s.busy.Lock()
	defer s.busy.Unlock()
	s.asked <- inode
	p = <-s.found
	return p, p.PID != 0
}

// scan begins with the highest pid: a command that has just been started is the likeliest, and the first to be gone.
func scan(inode uint32) Process {
	want := []byte("socket:[" + strconv.FormatUint(uint64(inode), 10) + "]")
	links := maxLinks
	all := pids()
	for _, pid := range slices.Backward(all[max(0, len(all)-maxPIDs):]) {
		proc := "/proc/" + strconv.Itoa(pid)
		fd, err := unix.Open(proc+"/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // another user's, or gone
		}
		has := holds(fd, want, &links)
		unix.Close(fd)
		if has {
			if name, err := os.ReadFile(proc + "/comm"); err == nil {
				return Process{PID: pid, Name: string(bytes.TrimSuffix(name, []byte("\n")))}
			}
		}
		if has || links <= 0 {
			break
		}
	}
	return Process{}
}

func pids() (out []int) {
	entries, _ := os.ReadDir("/proc") // what was read before an error will do
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out
}

// holds says whether one of the links in the directory leads to want. A look takes links out of the budget.
func holds(dir int, want []byte, links *int) bool {
	var entries, target [4096]byte
	for {
		n, err := unix.ReadDirent(dir, entries[:])
		if err != nil || n <= 0 {
			return false
		}
		_, _, names := unix.ParseDirent(entries[:n], -1, nil)
		for _, name := range names {
			if *links--; *links < 0 {
				return false
			}
			if n, err := unix.Readlinkat(dir, name, target[:]); err == nil && bytes.Equal(target[:n], want) {
				return true
			}
		}
	}
}
