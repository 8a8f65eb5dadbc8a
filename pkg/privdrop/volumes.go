package privdrop

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// volumeRoot is where container engines keep their volumes on the host. A
// directory of the host that is mounted by its path isn't one.
var volumeRoot = regexp.MustCompile(`/volumes/[^/]+/_data$`)

// maxDepth bounds the descent into a volume.
const maxDepth = 128

// volume is a mount point of a volume.
type volume struct {
	mount uint64 // its number
	point string
}

// volumesBelow returns the volumes of the engine that are mounted at or below
// dir, according to a mountinfo file (proc_pid_mountinfo(5)).
func volumesBelow(dir, mountinfo string) ([]volume, error) {
	f, err := os.Open(mountinfo)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []volume
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			continue
		}
		mount, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", mountinfo, err)
		}
		root, point := unescape(fields[3]), unescape(fields[4])
		rel, err := filepath.Rel(dir, point)
		if volumeRoot.MatchString(root) && err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			out = append(out, volume{mount, point})
		}
	}
	return out, lines.Err()
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	for _, c := range " \t\n\\" {
		s = strings.ReplaceAll(s, fmt.Sprintf(`\%03o`, c), string(c))
	}
	return s
}

// giveVolumes gives the volumes in id's home to id: an engine fills a new
// volume with what the image has there, which belongs to the image's agent. What
// the volume's owner owns in it changes hands, and nothing else. A volume that is
// empty and root's was made for a directory that the image doesn't have.
func giveVolumes(id Identity, home string) error {
	volumes, err := volumesBelow(home, "/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("find the volumes in %s: %w", home, err)
	}
	var st unix.Stat_t
	if len(volumes) == 0 || unix.Lstat(home, &st) != nil {
		return nil
	}
	var errs []error
	for _, v := range volumes {
		// A thread that can't be root again is not to run anything else.
		var err error
		borrow(func() (same bool) {
			err = v.give(id, st.Uid)
			return become(0) == nil
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("give the volume %s to uid %d: %w", v.point, id.UID, err))
		}
	}
	return errors.Join(errs...)
}

// give gives the volume to id. The home that it is in belongs to owner. Without
// DAC_OVERRIDE root can't look into a directory that is closed to others; its
// owner can.
func (v volume) give(id Identity, owner uint32) error {
	if err := become(owner); err != nil {
		return err
	}
	fd, err := unix.Open(v.point, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// Where agents run already, one could have put a link in the way.
	var stx unix.Statx_t
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &stx)
	if err == nil && (stx.Mask&unix.STATX_MNT_ID == 0 || stx.Mnt_id != v.mount) {
		err = errors.New("it is not the volume that is mounted there")
	}
	if err != nil || stx.Uid == id.UID || stx.Mode&unix.S_IFMT != unix.S_IFDIR {
		unix.Close(fd)
		return err
	}
	g := giver{from: stx.Uid, to: id, mount: v.mount}
	return g.give(fd, 0)
}

// become sets the thread's uid for access to files, which takes root's
// capabilities for files with it, and gives them back (setfsuid(2)).
func become(uid uint32) error {
	if _, err := unix.SetfsuidRetUid(int(uid)); err != nil {
		return err
	}
	// A failure is not reported; asking for no uid tells the present one.
	if now, _ := unix.SetfsuidRetUid(-1); uint32(now) != uid {
		return missing(unix.CAP_SETUID)
	}
	return nil
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
	var stx unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &stx)
	if err != nil || stx.Uid != g.from || stx.Mnt_id != g.mount {
		return err
	}
	if stx.Mode&unix.S_IFMT == unix.S_IFDIR {
		if depth == maxDepth {
			return errors.New("directories are nested too deep")
		}
		empty, err := g.giveEntries(fd, depth)
		if err != nil {
			return err
		}
		if g.from == 0 && !empty {
			return nil // what root has put there is root's
		}
	}
	if err := become(0); err != nil {
		return err
	}
	switch err := unix.Fchownat(fd, "", int(g.to.UID), int(g.to.GID), unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err {
	case unix.EPERM:
		return missing(unix.CAP_CHOWN)
	case unix.EROFS:
		return ErrReadOnly
	default:
		return err
	}
}

// giveEntries gives what is in a directory, if it isn't root's, and says whether
// that is nothing.
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
			if err := g.giveEntry(list, name, depth); err != nil {
				return false, err
			}
		}
		if err := become(g.from); err != nil {
			return false, err
		}
	}
}

func (g giver) giveEntry(dir int, name string, depth int) error {
	if err := become(g.from); err != nil {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	return g.give(fd, depth+1)
}
