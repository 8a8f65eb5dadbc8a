package process

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// plant writes poke into a box once more, with another mode or capabilities of
// the file (capabilities(7), "File capabilities").
func plant(t *testing.T, box *lab.Box, init *lab.Process, path string, mode os.FileMode, caps ...int) {
	t.Helper()
	data, err := box.ReadFile("/usr/local/bin/poke")
	rig.Must(t, err)
	rig.Must(t, box.WriteFile(path, data, mode.Perm()))
	inside := fmt.Sprintf("/proc/%d/root%s", init.Pid(), path)
	rig.Must(t, os.Chmod(inside, mode))
	if len(caps) == 0 {
		return
	}
	var mask uint32
	for _, c := range caps {
		mask |= 1 << c
	}
	// struct vfs_cap_data, revision 2, with the effective flag.
	attr := make([]byte, 20)
	putUint32(attr[0:], 0x02000001)
	putUint32(attr[4:], mask)
	rig.Must(t, unix.Setxattr(inside, "security.capability", attr, 0))
}

func putUint32(b []byte, v uint32) {
	for i := range 4 {
		b[i] = byte(v >> (8 * i))
	}
}
