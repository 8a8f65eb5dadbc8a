package stage

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"
)

// ForgetVariables takes variables out of this process: of what its children get, and of /proc/PID/environ, which shows
// the memory that the kernel has put them into (proc_pid_environ(5)). Go has copies of its own of what is used.
func ForgetVariables(names []string) error {
	if len(names) == 0 {
		return nil
	}
	for _, name := range names {
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	begin, end, err := environBlock()
	if err != nil || begin == 0 || begin >= end {
		return err
	}
	block := unsafe.Slice((*byte)(at(begin)), end-begin)
	for len(block) > 0 {
		line, rest, _ := bytes.Cut(block, []byte{0})
		if name, value, ok := bytes.Cut(line, []byte("=")); ok && slices.Contains(names, string(name)) {
			clear(value)
		}
		block = rest
	}
	return nil
}

// environBlock is where the kernel has put the variables: env_start and env_end of proc_pid_stat(5).
func environBlock() (begin, end uintptr, err error) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, 0, err
	}
	// The command name may hold anything, so the count starts behind its closing bracket: at the third field.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 49 {
		return 0, 0, nil // a kernel that does not tell, as gVisor's
	}
	if _, err := fmt.Sscan(fields[47]+" "+fields[48], &begin, &end); err != nil {
		return 0, 0, fmt.Errorf("/proc/self/stat: %w", err)
	}
	return begin, end, nil
}

// at is a pointer to an address outside of the heap, which the collector leaves alone.
func at(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
