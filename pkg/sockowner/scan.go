package sockowner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Process is one that has a socket open.
type Process struct {
	PID  int
	Name string // what it calls itself, up to 15 bytes of any kind
}

// Scanner looks through the open files of one user's processes.
type Scanner struct {
	busy sync.Mutex
	look chan func() // on its thread
	done chan struct{}
}

// How many processes and open files one look may take: many times what an agent at work has, and some milliseconds.
const (
	maxPIDs  = 1024
	maxLinks = 8192
	manyMore = 8 // times as many, for a look that finds all sockets
)

// NewScanner returns a Scanner of the processes of uid and gid. The caller may be root without CAP_SYS_PTRACE: the
// kernel lets a thread look at the open files of processes whose ids its own file system ids are (proc(5), ptrace(2)),
// and the Scanner has such a thread, without any capability. These processes can't reach it with a signal, since its
// other ids stay as they are. It lives as long as the program.
func NewScanner(uid, gid uint32) (*Scanner, error) {
	s := &Scanner{look: make(chan func()), done: make(chan struct{})}
	began := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: nothing else may run with these ids
		err := become(uid, gid)
		began <- err
		if err != nil {
			return
		}
		for look := range s.look {
			look()
			s.done <- struct{}{}
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
	// The change of ids has set this from fs.suid_dumpable, for the whole process (commit_creds in kernel/cred.c).
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
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

// Holder returns a process that has the socket open, the youngest of several. If there is none that can be seen, ok is
// false. One looks at a time. Of more than a thousand processes it looks at the youngest and the oldest.
func (s *Scanner) Holder(inode uint32) (p Process, ok bool, took time.Duration) {
	s.onThread(func() {
		before := processorTime()
		defer func() { took = processorTime() - before }()
		scan(1, func(has uint32, by holder) bool {
			if has != inode {
				return true
			}
			p, ok = by.process()
			return false
		})
	})
	return p, ok, took
}

// processorTime is that of the calling thread, or 0.
func processorTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// Holders returns for each of the sockets that one of the processes has open which it is, the youngest of several.
func (s *Scanner) Holders() map[uint32]Process {
	found := map[uint32]Process{}
	s.onThread(func() {
		var last holder
		var p Process
		scan(manyMore, func(inode uint32, by holder) bool {
			if _, has := found[inode]; has {
				return true
			}
			if by != last {
				last = by
				p, _ = by.process()
			}
			found[inode] = p
			return true
		})
	})
	return found
}

func (s *Scanner) onThread(look func()) {
	s.busy.Lock()
	defer s.busy.Unlock()
	s.look <- look
	<-s.done
}

// holder is a process that has the socket open which is looked at.
type holder int

func (h holder) process() (Process, bool) {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(int(h)) + "/comm")
	return Process{PID: int(h), Name: string(bytes.TrimSuffix(name, []byte("\n")))}, err == nil
}

// scan tells of each open socket until tell says that it is enough, or until so many times what a look may take were
// looked at. It begins with the youngest process: a command that has just been started is the likeliest, and the first
// to be gone.
func scan(times int, tell func(inode uint32, by holder) bool) {
	links := times * maxLinks
	for _, pid := range pids(times * maxPIDs) {
		fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // another user's, or gone
		}
		more := sockets(fd, &links, func(inode uint32) bool { return tell(inode, holder(pid)) })
		unix.Close(fd)
		if !more || links <= 0 {
			break
		}
	}
}

// sockets tells of those that the links in the directory lead to, until tell says that it is enough. A look takes links
// out of the budget.
func sockets(dir int, links *int, tell func(inode uint32) bool) (more bool) {
	var entries, target [4096]byte
	for {
		n, err := unix.ReadDirent(dir, entries[:])
		if err != nil || n <= 0 {
			return true
		}
		_, _, names := unix.ParseDirent(entries[:n], -1, nil)
		for _, name := range names {
			if *links--; *links < 0 {
				return false
			}
			n, err := unix.Readlinkat(dir, name, target[:])
			if err != nil {
				continue
			}
			if inode, is := socketOf(target[:n]); is && !tell(inode) {
				return false
			}
		}
	}
}

// socketOf reads the inode of socket:[inode].
func socketOf(link []byte) (inode uint32, is bool) {
	digits, is := bytes.CutPrefix(link, []byte("socket:["))
	digits, end := bytes.CutSuffix(digits, []byte("]"))
	n, err := strconv.ParseUint(string(digits), 10, 32)
	return uint32(n), is && end && err == nil
}
