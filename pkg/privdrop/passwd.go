package privdrop

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Bounds of an account file. What is beyond them is an error, not a surprise.
const (
	maxAccountFile = 1 << 20
	maxAccountLine = 8 << 10
	maxGroups      = 256 // supplementary groups of one account
)

// noID is (uid_t)-1, which means "leave it" to the kernel.
const noID = 1<<32 - 1

// account is one line of passwd(5).
type account struct {
	name, home, shell string
	uid, gid          uint32
}

// group is one line of group(5).
type group struct {
	name    string
	gid     uint32
	members []string
}

// parsePasswd reads passwd(5). Lines that make no account are left out, as the
// C library does; so are those of NIS.
func parsePasswd(data []byte) ([]account, error) {
	var all []account
	err := eachLine(data, func(line string) {
		if u, ok := parseAccount(line); ok {
			all = append(all, u)
		}
	})
	return all, err
}

func parseAccount(line string) (account, bool) {
	f := strings.Split(line, ":")
	if len(f) != 7 || !validName(f[0]) || !plain(line) {
		return account{}, false
	}
	uid, err1 := parseID(f[2])
	gid, err2 := parseID(f[3])
	return account{name: f[0], uid: uid, gid: gid, home: f[5], shell: f[6]}, err1 == nil && err2 == nil
}

// parseGroup reads group(5), as parsePasswd does.
func parseGroup(data []byte) ([]group, error) {
	var all []group
	err := eachLine(data, func(line string) {
		f := strings.Split(line, ":")
		if len(f) != 4 || !validName(f[0]) || !plain(line) {
			return
		}
		gid, err := parseID(f[2])
		if err != nil {
			return
		}
		g := group{name: f[0], gid: gid}
		if f[3] != "" {
			g.members = strings.Split(f[3], ",")
		}
		all = append(all, g)
	})
	return all, err
}

func eachLine(data []byte, do func(string)) error {
	if len(data) > maxAccountFile {
		return fmt.Errorf("longer than %d bytes", maxAccountFile)
	}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if len(line) > maxAccountLine {
			return fmt.Errorf("line %d is longer than %d bytes", n, maxAccountLine)
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		do(string(line))
	}
	return nil
}

// plain reports whether the line is neither a comment nor binary.
func plain(line string) bool {
	return !strings.HasPrefix(line, "#") && strings.IndexByte(line, 0) < 0
}

// validName keeps what would be special in the file, or taken for a number,
// out of account names.
func validName(name string) bool {
	if name == "" || len(name) > 256 || strings.ContainsAny(name, ":,/\n\x00 ") || strings.ContainsRune("+-", rune(name[0])) {
		return false
	}
	return !numeric(name)
}

func numeric(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// parseID reads a uid or gid: decimal, and not the one that means none.
func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || !numeric(s) || n == noID {
		return 0, fmt.Errorf("%q is not an id between 0 and %d", s, uint32(noID-1))
	}
	return uint32(n), nil
}

// accounts is what passwd and group say.
type accounts struct {
	users  []account
	groups []group
}

// readAccounts reads both files. One that does not exist is empty.
func readAccounts(passwdFile, groupFile string) (accounts, error) {
	var a accounts
	data, err := readBounded(passwdFile)
	if err == nil {
		a.users, err = parsePasswd(data)
	}
	if err != nil {
		return a, fmt.Errorf("read %s: %w", passwdFile, err)
	}
	data, err = readBounded(groupFile)
	if err == nil {
		a.groups, err = parseGroup(data)
	}
	if err != nil {
		return a, fmt.Errorf("read %s: %w", groupFile, err)
	}
	return a, nil
}

func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxAccountFile+1))
}

// The first match counts, as in the C library.

func (a accounts) byName(name string) (account, bool) {
	return first(a.users, func(u account) bool { return u.name == name })
}

func (a accounts) byUID(uid uint32) (account, bool) {
	return first(a.users, func(u account) bool { return u.uid == uid })
}

func (a accounts) groupByName(name string) (group, bool) {
	return first(a.groups, func(g group) bool { return g.name == name })
}

func first[T any](all []T, is func(T) bool) (T, bool) {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i], true
	}
	var none T
	return none, false
}

// supplementary lists the groups that name is a member of, without gid, which
// it has anyway, and without group 0, whose files are root's.
func (a accounts) supplementary(name string, gid uint32) []uint32 {
	var ids []uint32
	for _, g := range a.groups {
		if g.gid != 0 && g.gid != gid && slices.Contains(g.members, name) && !slices.Contains(ids, g.gid) {
			ids = append(ids, g.gid)
		}
	}
	slices.Sort(ids)
	return ids[:min(len(ids), maxGroups)]
}
