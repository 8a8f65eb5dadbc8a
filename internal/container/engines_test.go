package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMountedSockets(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"docker.sock", "with space.sock", "of two\nlines.sock"} {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(dir, name)}); err != nil {
			t.Fatal(err)
		}
	}
	info := filepath.Join(dir, "mountinfo")
	text := "36 35 98:0 /x " + dir + "/docker.sock rw - ext4 /dev/a rw\n37 35 98:0 /x " + dir + `/with\040space.sock rw - ext4 /dev/a rw` + "\n39 35 98:0 /x " + dir + `/of\040two\012lines.sock rw - ext4 /dev/a rw` + "\n38 35 98:0 / " + dir + " rw - ext4 /dev/a rw\nshort\n"
	if err := os.WriteFile(info, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(MountedSockets(info, map[string]string{"SSH_AUTH_SOCK": dir + "/docker.sock", "DOCKER_HOST": "tcp://x"}), " ")
	for _, want := range []string{"docker.sock", "with space.sock", "of two\nlines.sock"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%s: found %q", want, got)
		}
	}
}
