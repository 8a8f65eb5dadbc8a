package drop

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/privdrop"
)

// verify reads back from the kernel what drop has done to the calling thread.
func verify(s privdrop.Spec) error {
	status, err := readStatus()
	if err != nil {
		return err
	}
	if err := status.check(s.Identity); err != nil {
		return err
	}
	if err := checkSecurebits(); err != nil {
		return err
	}
	if s.Nice > 0 && !privdrop.OnGVisor() {
		if err := standsBack(s.Nice); err != nil {
			return err
		}
	}
	return tryRoot()
}

// Confirm reads back from the kernel that the calling process has no privilege, nor a way to one.
func Confirm() error {
	status, err := readStatus()
	if err != nil {
		return err
	}
	id := privdrop.Identity{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	groups, err := os.Getgroups()
	if err != nil {
		return err
	}
	for _, g := range groups {
		id.Groups = append(id.Groups, uint32(g))
	}
	if err := id.Check(); err != nil {
		return err
	}
	return cmp.Or(status.must(ids(id)), status.must(held), status.must(surviving), checkSecurebits(), tryRoot())
}

func standsBack(n int) error {
	switch is, err := niceness(); {
	case err != nil:
		return fmt.Errorf("read the niceness: %w", err)
	case is < n:
		return fmt.Errorf("the niceness is %d, not %d", is, n)
	case unix.Setpriority(unix.PRIO_PROCESS, 0, n-1) == nil:
		return errors.New("the niceness can be lowered")
	}
	if n >= idleNice {
		attr, err := unix.SchedGetAttr(0, 0)
		if err == unix.ENOSYS {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read how it is scheduled: %w", err)
		}
		if attr.Policy != unix.SCHED_IDLE {
			return fmt.Errorf("it is scheduled by policy %d, not when nothing else is", attr.Policy)
		}
		if unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Nice: idleNice}, 0) == nil {
			return errors.New("it can leave SCHED_IDLE")
		}
	}
	return nil
}

func checkSecurebits() error {
	bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("read the securebits: %w", err)
	}
	if bits != securebits && !privdrop.OnGVisor() {
		return fmt.Errorf("the securebits are %#x, not %#x", bits, securebits)
	}
	return nil
}

// tryRoot is an error if anything of root's can be had.
func tryRoot() error {
	switch {
	case rawSetres(unix.SYS_SETRESUID, 0) == nil:
		return errors.New("setresuid to 0 succeeded")
	case rawSetres(unix.SYS_SETRESGID, 0) == nil:
		return errors.New("setresgid to 0 succeeded")
	case unix.Setgroups([]int{0}) == nil:
		return errors.New("setgroups to 0 succeeded")
	}
	return nil
}

// status is proc_pid_status(5): fields by their names.
type status map[string]string

func readStatus() (status, error) {
	text, err := os.ReadFile("/proc/thread-self/status")
	return parseStatus(string(text)), err
}

func parseStatus(text string) status {
	s := status{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			s[name] = strings.Join(strings.Fields(value), " ")
		}
	}
	return s
}

// fields are names and values that a status is to have.
type fields [][2]string

const noCapability = "0000000000000000"

var (
	// held is what a process can do, and surviving what an execve(2) could make of it.
	held      = fields{{"CapPrm", noCapability}, {"CapEff", noCapability}}
	surviving = fields{{"CapInh", noCapability}, {"CapBnd", noCapability}, {"CapAmb", noCapability}, {"NoNewPrivs", "1"}, {"Seccomp", "2"}}
)

func ids(id privdrop.Identity) fields {
	four := func(n uint32) string { return strings.Repeat(fmt.Sprintf(" %d", n), 4)[1:] }
	return fields{{"Uid", four(id.UID)}, {"Gid", four(id.GID)}}
}

// must is an error unless s has what is wanted.
func (s status) must(want fields) error {
	for _, w := range want {
		got, ok := s[w[0]]
		if !ok {
			return fmt.Errorf("the kernel does not say %s", w[0])
		}
		if got != w[1] {
			return fmt.Errorf("%s is %s, not %s", w[0], got, w[1])
		}
	}
	return nil
}

// check compares s with the end state that id stands for.
func (s status) check(id privdrop.Identity) error {
	for _, want := range []fields{ids(id), held, surviving} {
		if err := s.must(want); err != nil {
			return err
		}
	}
	got, want := strings.Fields(s["Groups"]), []string(nil)
	for _, gid := range id.Groups {
		want = append(want, fmt.Sprint(gid))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("the groups are %v, not %v", got, want)
	}
	return nil
}
