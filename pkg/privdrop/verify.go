package privdrop

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// verify reads back from the kernel what drop has done to the calling thread.
func verify(s Spec) error {
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return err
	}
	if err := checkStatus(string(status), s.Identity); err != nil {
		return err
	}
	bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("read the securebits: %w", err)
	}
	if bits != securebits && !OnGVisor() {
		return fmt.Errorf("the securebits are %#x, not %#x", bits, securebits)
	}
	// Now try it.
	switch {
	case rawSetres(unix.SYS_SETRESUID, 0) == nil:
		return errors.New("setresuid to 0 succeeded")
	case rawSetres(unix.SYS_SETRESGID, 0) == nil:
		return errors.New("setresgid to 0 succeeded")
	case setgroups([]uint32{0}) == nil:
		return errors.New("setgroups to 0 succeeded")
	}
	return nil
}

// checkStatus compares proc_pid_status(5) with the end state that id stands for.
func checkStatus(status string, id Identity) error {
	field := make(map[string]string)
	for line := range strings.Lines(status) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			field[name] = strings.Join(strings.Fields(value), " ")
		}
	}
	four := func(n uint32) string { return strings.Repeat(fmt.Sprintf(" %d", n), 4)[1:] }
	const none = "0000000000000000"
	for _, want := range []struct{ name, value string }{
		{"Uid", four(id.UID)},
		{"Gid", four(id.GID)},
		{"CapInh", none}, {"CapPrm", none}, {"CapEff", none}, {"CapBnd", none}, {"CapAmb", none},
		{"NoNewPrivs", "1"},
		{"Seccomp", "2"},
	} {
		got, ok := field[want.name]
		if !ok {
			return fmt.Errorf("the kernel does not say %s", want.name)
		}
		if got != want.value {
			return fmt.Errorf("%s is %s, not %s", want.name, got, want.value)
		}
	}
	got, want := strings.Fields(field["Groups"]), []string(nil)
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
