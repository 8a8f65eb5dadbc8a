package keeper

import (
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/pkg/policy"
)

// The policy's files are looked at by the clock: a notification (inotify(7)) is
// about an inode, and what is mounted, bind-mounted or swapped by a symbolic
// link under the same path, as volumes of Kubernetes are, is another one.

// maxWatched is how many files of a directory are looked at.
const maxWatched = 2000

// filesState is a digest of all that tells one version of the policy's files from
// another, behind every link: inode, size, times, mode and owner.
func filesState(dir, hosts string) uint64 {
	h := fnv.New64a()
	look := func(path string) {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			fmt.Fprintln(h, path, err)
			return
		}
		fmt.Fprintln(h, path, st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim, st.Mode, st.Uid, st.Gid)
	}
	look(filepath.Join(dir, "policy.yaml"))
	look(filepath.Join(dir, "allowlist.txt"))
	if hosts != "" {
		look(hosts)
	}
	list := filepath.Join(dir, "allowlist.d")
	d, err := os.Open(list)
	if err != nil {
		fmt.Fprintln(h, "no directory")
		return h.Sum64()
	}
	defer d.Close()
	names, err := d.Readdirnames(maxWatched)
	if err != nil && err != io.EOF {
		fmt.Fprintln(h, err)
	}
	// The order is the file system's, and stays while nothing changes.
	for _, name := range names {
		look(filepath.Join(list, name))
	}
	return h.Sum64()
}

// watched decides when changed files are read.
type watched struct {
	loaded uint64 // what was read last, well or not
	seen   uint64 // at the last look
}

// due says whether the files have changed since they were read, and then stayed
// the same for one look: a file that is being written is not read half-way.
func (w *watched) due(now uint64) bool {
	settled := now == w.seen
	w.seen = now
	return settled && now != w.loaded
}

// filesState is that of the files that read reads.
func (r *reader) filesState() uint64 {
	return filesState(r.config.PolicyDir, container.HostsFile(r.mode))
}

// readFiles reads the files of the policy, and the hosts file where it counts.
func (r *reader) readFiles() (*policy.Bundle, error) {
	return policy.Read(policy.ReadOptions{Dir: r.config.PolicyDir, HostsFile: container.HostsFile(r.mode)})
}
