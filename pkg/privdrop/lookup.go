package privdrop

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The agent account, where an image says nothing else.
const (
	agentName  = "agent"
	agentID    = 1000
	agentHome  = "/home/agent"
	agentShell = "/bin/sh"
)

// LookupOptions says whom Lookup looks for.
type LookupOptions struct {
	Spec             string       // "auto" (or empty), NAME, UID, UID:GID or NAME:GROUP
	HostUID, HostGID string       // that "auto" maps the agent to, as decimal text; empty means none
	Workspace        string       // the directory whose owner "auto" takes over if HostUID is empty and it was mounted
	Log              *slog.Logger // for warnings
}

// Lookup finds the identity that o asks for. It never returns uid 0 or gid 0.
func Lookup(o LookupOptions) (Identity, error) { return o.lookup("/etc/passwd", "/etc/group") }

func (o LookupOptions) lookup(passwdFile, groupFile string) (id Identity, err error) {
	a, err := readAccounts(passwdFile, groupFile)
	if err != nil {
		return Identity{}, err
	}
	if o.Spec == "" || o.Spec == "auto" {
		id, err = o.auto(a)
	} else {
		id, err = a.explicit(o.Spec)
	}
	if err != nil {
		return Identity{}, err
	}
	if err := id.Check(); err != nil {
		return Identity{}, fmt.Errorf("user %q: %w", cmp.Or(o.Spec, "auto"), err)
	}
	return id, nil
}

// Check refuses identities that would be no drop at all.
func (id Identity) Check() error {
	switch {
	case id.UID == 0:
		return errors.New("an agent with uid 0 could change the rules: name another user, such as --user 1000:1000")
	case id.GID == 0 || slices.Contains(id.Groups, 0):
		return errors.New("an agent in group 0 could read files of root: name another group, such as --user 1000:1000")
	case id.UID == noID || id.GID == noID || slices.Contains(id.Groups, noID):
		return fmt.Errorf("%d is not an id", uint32(noID))
	}
	return nil
}

// explicit resolves NAME, UID, UID:GID, NAME:GROUP and their mixtures.
func (a accounts) explicit(spec string) (id Identity, err error) {
	user, grp, hasGroup := strings.Cut(spec, ":")
	if numeric(user) {
		uid, err := parseID(user)
		if err != nil {
			return id, fmt.Errorf("user %q: %w", spec, err)
		}
		id = a.identity(uid)
	} else {
		u, ok := first(a.users, named(user))
		if !ok {
			return id, fmt.Errorf("user %q is not in %s: add it to the image, or name a uid", user, a.passwdFile)
		}
		id = a.identityOf(u)
	}
	if !hasGroup {
		return id, nil
	}
	if !numeric(grp) {
		g, ok := first(a.groups, named(grp))
		if !ok {
			return id, fmt.Errorf("group %q is not in %s: add it to the image, or name a gid", grp, a.groupFile)
		}
		return a.withGroup(id, g.id), nil
	}
	gid, err := parseID(grp)
	if err != nil {
		return id, fmt.Errorf("user %q: %w", spec, err)
	}
	return a.withGroup(id, gid), nil
}

// auto takes the image's agent, mapped to the ids of the host, or to those of
// the workspace's owner, so that the files in it stay the person's own.
func (o LookupOptions) auto(a accounts) (id Identity, err error) {
	uid, err := o.hostID("HOST_UID", o.HostUID)
	gid, err2 := o.hostID("HOST_GID", o.HostGID)
	if err := cmp.Or(err, err2); err != nil {
		return id, err
	}
	if o.HostUID == "" {
		var ownerGID uint32
		uid, ownerGID = workspaceOwner(o.Workspace)
		gid = cmp.Or(gid, ownerGID)
	}
	id = a.agent()
	if uid != 0 && uid != id.UID {
		id = a.identity(uid)
		gid = cmp.Or(gid, id.GID)
	}
	if gid != 0 {
		id = a.withGroup(id, gid)
	}
	return id, nil
}

// hostID reads HostUID or HostGID; 0 means none.
func (o LookupOptions) hostID(name, text string) (uint32, error) {
	if text == "" {
		return 0, nil
	}
	id, err := parseID(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: unset it, or set it to $(id -u) or $(id -g)", name, err)
	}
	if id == 0 {
		o.Log.Warn(name + " is 0, which the agent cannot have: it keeps its own, so files that it makes may belong to another user on the host")
	}
	return id, nil
}

// workspaceOwner returns the owner of the workspace, or 0 if the agent can't be that. Only a
// directory that was mounted says who works in it.
func workspaceOwner(dir string) (uid, gid uint32) {
	fd, err := unix.Open(dir, openHere, 0) // a link could point at a directory of anybody
	if err != nil {
		return 0, 0
	}
	defer unix.Close(fd)
	if st, err := look(fd); err == nil && st.Uid != 0 && st.Uid != noID && mounted(st) {
		return st.Uid, st.Gid
	}
	return 0, 0
}

// agent is the account "agent"; in images without one the account that has its
// usual uid, such as node or ubuntu; else one that is still to be made.
func (a accounts) agent() Identity {
	if u, ok := first(a.users, named(agentName)); ok {
		return a.identityOf(u)
	}
	return a.identity(agentID)
}

// identity is the account with uid. An unknown uid becomes the agent: it gets
// its name, home and shell, and a group with the uid's number, never root's.
func (a accounts) identity(uid uint32) Identity {
	if u, ok := first(a.users, numbered(uid)); ok {
		return a.identityOf(u)
	}
	id := Identity{UID: uid, GID: uid, Name: agentName, Home: agentHome, Shell: agentShell}
	if u, ok := first(a.users, named(agentName)); ok {
		known := a.identityOf(u)
		id.Home, id.Shell, id.Groups = known.Home, known.Shell, known.Groups
	}
	return id
}

func (a accounts) identityOf(u entry) Identity {
	return Identity{
		UID: u.id, GID: u.gid, Groups: a.supplementary(u.name, u.gid),
		Name: u.name, Home: cmp.Or(u.home, agentHome), Shell: cmp.Or(u.shell, agentShell),
	}
}

// withGroup changes the primary group, which need not be in the group file.
func (a accounts) withGroup(id Identity, gid uint32) Identity {
	id.GID = gid
	id.Groups = a.supplementary(id.Name, gid)
	return id
}
