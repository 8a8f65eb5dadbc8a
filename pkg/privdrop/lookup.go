package privdrop

import (
	"errors"
	"log/slog"
)

// LookupOptions says where Lookup looks.
type LookupOptions struct {
	// Spec is "auto" (or empty), NAME, UID, UID:GID or NAME:GROUP.
	Spec string

	PasswdFile, GroupFile string // default /etc/passwd and /etc/group

	// HostUID and HostGID are the ids that "auto" maps the agent to, as
	// decimal text; empty means none.
	HostUID, HostGID string

	// Workspace is the directory whose owner "auto" takes over if HostUID is
	// empty; empty means none.
	Workspace string

	// Reserved are uids that the agent may never have, such as the guard's.
	Reserved []uint32

	Log *slog.Logger // for warnings; nil discards
}

// Lookup finds the identity that o asks for. It never returns uid 0 or gid 0.
func Lookup(o LookupOptions) (Identity, error) {
	return Identity{}, errors.New("lookup: not built yet")
}

// AccountOptions says what EnsureAccount may touch.
type AccountOptions struct {
	PasswdFile string // default /etc/passwd
	HomeRoot   string // default /home: homes that are not below it are left alone
}

// ErrReadOnly is returned by EnsureAccount if the file system does not let it
// write. The identity works without an entry, for most programs.
var ErrReadOnly = errors.New("file system is read-only")

// EnsureAccount gives id a passwd entry and makes its home directory usable.
// Its errors are all worth no more than a warning; errors.Is finds ErrReadOnly
// and errors.As a *CapabilityError among them.
func EnsureAccount(id Identity, o AccountOptions) error { return errors.New("not built yet") }
