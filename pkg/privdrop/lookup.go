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

// LookupOptions says where Lookup looks.
type LookupOptions struct {
	// Spec is "auto" (or empty), NAME, UID, UID:GID or NAME:GROUP.
	Spec string

	PasswdFile, GroupFile string // default /etc/passwd and /etc/group

	// HostUID and HostGID are the ids that "auto" maps the agent to, as
	// decimal text; empty means none.
	HostUID, HostGID string

	// Workspace is the directory whose owner "auto" takes over if HostUID is
	// empty and it was mounted; empty means none.
	Workspace string

	// Reserved are uids that the agent may never have, such as the guard's.
	Reserved []uint32

	Log *slog.Logger // for warnings; nil discards
}

// Lookup finds the identity that o asks for. It never returns uid 0 or gid 0.
func Lookup(o LookupOptions) (Identity, error) {
	o.PasswdFile = cmp.Or(o.PasswdFile, "/etc/passwd")
	o.GroupFile = cmp.Or(o.GroupFile, "/etc/group")
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a, err := readAccounts(o.PasswdFile, o.GroupFile)
	if err != nil {
		return Identity{}, err
	}
	var id Identity
	if o.Spec == "" || o.Spec == "auto" {
		id, err = o.auto(a)
	} else {
		id, err = o.explicit(a)
	}
	if err != nil {
		return Identity{}, err
	}
	if err := id.check(o.Reserved...); err != nil {
		return Identity{}, fmt.Errorf("user %q: %w", cmp.Or(o.Spec, "auto"), err)
	}
	return id, nil
}

// check refuses identities that would be no drop at all.
func (id Identity) check(reserved ...uint32) error {
	switch {
	case id.UID == 0:
		return errors.New("an agent with uid 0 could change the rules: name another user, such as --user 1000:1000")
	case id.GID == 0 || slices.Contains(id.Groups, 0):
		return errors.New("an agent in group 0 could read files of root: name another group, such as --user 1000:1000")
	case id.UID == noID || id.GID == noID || slices.Contains(id.Groups, noID):
		return fmt.Errorf("%d is not an id", uint32(noID))
	case slices.Contains(reserved, id.UID):
		return fmt.Errorf("uid %d belongs to agent-init itself: name another user", id.UID)
	}
	return nil
}

// explicit resolves NAME, UID, UID:GID, NAME:GROUP and their mixtures.
func (o LookupOptions) explicit(a accounts) (Identity, error) {
	user, grp, hasGroup := strings.Cut(o.Spec, ":")
	var id Identity
	if numeric(user) {
		uid, err := parseID(user)
		if err != nil {
			return id, fmt.Errorf("user %q: %w", o.Spec, err)
		}
		id = a.identity(uid)
	} else {
		u, ok := a.byName(user)
		if !ok {
			return id, fmt.Errorf("user %q is not in %s: add it to the image, or name a uid", user, o.PasswdFile)
		}
		id = a.identityOf(u)
	}
	if !hasGroup {
		return id, nil
	}
	gid, err := parseID(grp)
	if !numeric(grp) {
		g, ok := a.groupByName(grp)
		if !ok {
			return id, fmt.Errorf("group %q is not in %s: add it to the image, or name a gid", grp, o.GroupFile)
		}
		gid, err = g.gid, nil
	}
	if err != nil {
		return id, fmt.Errorf("user %q: %w", o.Spec, err)
	}
	return a.withGroup(id, gid), nil
}

// auto takes the image's agent, mapped to the ids of the host, or to those of
// the workspace's owner, so that the files in it stay the person's own.
func (o LookupOptions) auto(a accounts) (Identity, error) {
	agent := a.agent()
	uid, gid, err := o.hostIDs()
	if err != nil {
		return agent, err
	}
	if uid == 0 && o.HostUID == "" {
		uid, gid = o.workspaceOwner(gid)
	}
	id := agent
	if uid != 0 && uid != agent.UID {
		id = a.identity(uid)
		if gid == 0 {
			gid = id.GID
		}
	}
	if gid != 0 {
		id = a.withGroup(id, gid)
	}
	return id, nil
}

// hostIDs reads HostUID and HostGID; 0 means none.
func (o LookupOptions) hostIDs() (uid, gid uint32, err error) {
	for _, v := range []struct {
		name, text string
		to         *uint32
	}{{"HOST_UID", o.HostUID, &uid}, {"HOST_GID", o.HostGID, &gid}} {
		if v.text == "" {
			continue
		}
		if *v.to, err = parseID(v.text); err != nil {
			return 0, 0, fmt.Errorf("%s: %w: unset it, or set it to $(id -u) or $(id -g)", v.name, err)
		}
		if *v.to == 0 {
			o.Log.Warn(v.name + " is 0, which the agent cannot have: it keeps its own, so files that it makes may belong to another user on the host")
		}
	}
	return uid, gid, nil
}

// workspaceOwner returns the owner of the workspace, or 0 if it is nobody that
// the agent can be. A directory of the image itself says nothing about who works
// in it: only one that was mounted counts.
func (o LookupOptions) workspaceOwner(hostGID uint32) (uid, gid uint32) {
	if o.Workspace == "" {
		return 0, hostGID
	}
	// A link could point at a directory of anybody.
	fd, err := unix.Open(o.Workspace, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, hostGID
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Uid == 0 || stat.Uid == noID || !mounted(fd) {
		return 0, hostGID
	}
	if slices.Contains(o.Reserved, stat.Uid) {
		o.Log.Warn("the workspace belongs to a uid that agent-init uses itself: the agent keeps its own", "workspace", o.Workspace, "uid", stat.Uid)
		return 0, hostGID
	}
	return stat.Uid, cmp.Or(hostGID, stat.Gid)
}

// agent is the account "agent"; in images without one the account that has its
// usual uid, such as node or ubuntu; else one that is still to be made.
func (a accounts) agent() Identity {
	if u, ok := a.byName(agentName); ok {
		return a.identityOf(u)
	}
	return a.identity(agentID)
}

// identity is the account with uid. An unknown uid becomes the agent: it gets
// its name, home and shell, and a group with the uid's number, never root's.
func (a accounts) identity(uid uint32) Identity {
	if u, ok := a.byUID(uid); ok {
		return a.identityOf(u)
	}
	id := Identity{UID: uid, GID: uid, Name: agentName, Home: agentHome, Shell: agentShell}
	if u, ok := a.byName(agentName); ok {
		known := a.identityOf(u)
		id.Home, id.Shell, id.Groups = known.Home, known.Shell, known.Groups
	}
	return id
}

func (a accounts) identityOf(u account) Identity {
	return Identity{
		UID: u.uid, GID: u.gid, Groups: a.supplementary(u.name, u.gid),
		Name: u.name, Home: cmp.Or(u.home, agentHome), Shell: cmp.Or(u.shell, agentShell),
	}
}

// withGroup changes the primary group, which need not be in the group file.
func (a accounts) withGroup(id Identity, gid uint32) Identity {
	id.GID = gid
	id.Groups = a.supplementary(id.Name, gid)
	return id
}
