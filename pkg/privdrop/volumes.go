package privdrop

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lazy"
)

// volumeRoot is where container engines keep their volumes on the host.
var volumeRoot = lazy.Pattern(`/volumes/[^/]+/_data$`)

// maxDepth bounds the descent into a volume.
const maxDepth = 128

// Mount is a line of a mountinfo file.
type Mount struct {
	ID    uint64
	Root  string // the directory of the file system that is mounted
	Point string
}

// Mounts reads a file as proc_pid_mountinfo(5) describes it.
func Mounts(mountinfo string) (out []Mount, err error) {
	data, err := os.ReadFile(mountinfo)
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 6 {
			continue
		}
		id, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			return out, fmt.Errorf("%s: %w", mountinfo, err)
		}
		out = append(out, Mount{id, octal.Replace(fields[3]), octal.Replace(fields[4])})
	}
	return out, err
}

// octal undoes the escapes of mountinfo.
var octal = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// giveVolumes gives the volumes in id's home to id: an engine fills a new volume with what the
// image has there, which belongs to the image's agent. Only what the volume's owner owns in it
// changes hands. One that is empty and root's was made for a directory that the image lacks.
func giveVolumes(id Identity, home string) error {
	mounts, err := Mounts("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("find the volumes in %s: %w", home, err)
	}
	var st unix.Stat_t
	if unix.Lstat(home, &st) != nil {
		return nil
	}
	var errs []error
	for _, m := range mounts {
		rel, err := filepath.Rel(home, m.Point)
		if !volumeRoot().MatchString(m.Root) || err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		// A thread that can't be root again is not to run anything else.
		borrow(func() (same bool) {
			err = giveVolume(m, id, st.Uid)
			return become(0) == nil
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("give the volume %s to uid %d: %w", m.Point, id.UID, err))
		}
	}
	return errors.Join(errs...)
}

// giveVolume gives a volume to id. The home that it is in belongs to owner, who can look into a
// directory that is closed to others: root without DAC_OVERRIDE can't.
func giveVolume(m Mount, id Identity, owner uint32) error {
	if err := become(owner); err != nil {
		return err
	}
	fd, err := unix.Open(m.Point, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// Where agents run already, one could have put a link in the way.
	st, err := look(fd)
	if err == nil && (st.Mask&unix.STATX_MNT_ID == 0 || st.Mnt_id != m.ID) {
		err = errors.New("it is not the volume that is mounted there")
	}
	if err != nil || st.Uid == id.UID || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		unix.Close(fd)
		return err
	}
	return giver{from: st.Uid, to: id, mount: m.ID}.give(fd, 0)
}

// giver gives the files of one owner in one mount to another.
type giver struct {
	from  uint32
	to    Identity
	mount uint64
}

// give gives what fd is, and what is in it, the innermost first: a start that was
// cut short is made good by the next. It closes fd.
func (g giver) give(fd, depth int) error {
	defer unix.Close(fd)
	st, err := look(fd)
	if err != nil || st.Uid != g.from || st.Mnt_id != g.mount {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if depth == maxDepth {
			return errors.New("directories are nested too deep")
		}
		empty, err := g.giveEntries(fd, depth)
		if err != nil || g.from == 0 && !empty { // what root has put there is root's
			return err
		}
	}
	if err := become(0); err != nil {
		return err
	}
	return give(fd, g.to)
}

// giveEntries gives what is in a directory, if it isn't root's, and says whether
// that is nothing. The thread is the owner's from here on.
func (g giver) giveEntries(fd, depth int) (empty bool, err error) {
	if err := become(g.from); err != nil {
		return false, err
	}
	list, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	dir := os.NewFile(uintptr(list), "volume")
	defer dir.Close()
	empty = true
	for {
		names, err := dir.Readdirnames(512) // however many there are
		if err == io.EOF {
			return empty, nil
		}
		empty = empty && len(names) == 0
		if err != nil || g.from == 0 {
			return empty, err
		}
		for _, name := range names {
			fd, err := unix.Openat(list, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err == unix.ENOENT {
				continue
			}
			if err == nil {
				err = g.give(fd, depth+1)
			}
			if err == nil {
				err = become(g.from)
			}
			if err != nil {
				return false, err
			}
		}
	}
}
