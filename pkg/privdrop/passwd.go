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

// parseAccount reads a line of passwd(5), if it makes an account.
func parseAccount(line string) (account, bool) {
	f, ok := fields(line, 7)
	if !ok {
		return account{}, false
	}
	uid, err1 := parseID(f[2])
	gid, err2 := parseID(f[3])
	return account{name: f[0], uid: uid, gid: gid, home: f[5], shell: f[6]}, err1 == nil && err2 == nil
}

// parseGroup reads a line of group(5), as parseAccount does.
func parseGroup(line string) (group, bool) {
	f, ok := fields(line, 4)
	if !ok {
		return group{}, false
	}
	gid, err := parseID(f[2])
	return group{name: f[0], gid: gid, members: strings.Split(f[3], ",")}, err == nil
}

// fields are those of a line that has n of them, and is neither a comment nor binary.
func fields(line string, n int) (f []string, ok bool) {
	f = strings.Split(line, ":")
	return f, len(f) == n && validName(f[0]) && !strings.HasPrefix(line, "#") && strings.IndexByte(line, 0) < 0
}

// parseLines reads passwd(5) or group(5). Lines that make no account are left out, as the
// C library does; so are those of NIS.
func parseLines[T any](data []byte, parse func(line string) (T, bool)) (all []T, err error) {
	if len(data) > maxAccountFile {
		return nil, fmt.Errorf("longer than %d bytes", maxAccountFile)
	}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if len(line) > maxAccountLine {
			return nil, fmt.Errorf("line %d is longer than %d bytes", n, maxAccountLine)
		}
		if entry, ok := parse(strings.TrimSuffix(string(line), "\n")); ok {
			all = append(all, entry)
		}
	}
	return all, nil
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
	passwdFile, groupFile string

	users  []account
	groups []group
}

// readAccounts reads both files. One that does not exist is empty.
func readAccounts(passwdFile, groupFile string) (a accounts, err error) {
	a.passwdFile, a.groupFile = passwdFile, groupFile
	if a.users, _, err = readLines(passwdFile, parseAccount); err == nil {
		a.groups, _, err = readLines(groupFile, parseGroup)
	}
	return a, err
}

func readLines[T any](file string, parse func(line string) (T, bool)) (all []T, data []byte, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err == nil {
		defer f.Close()
		data, err = io.ReadAll(io.LimitReader(f, maxAccountFile+1))
	}
	if err == nil {
		all, err = parseLines(data, parse)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", file, err)
	}
	return all, data, nil
}

// The first match counts, as in the C library.

func (a accounts) byName(name string) (account, bool) {
	return first(a.users, func(u account) bool { return u.name == name })
}

func (a accounts) byUID(uid uint32) (account, bool) {
	return first(a.users, func(u account) bool { return u.uid == uid })
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
