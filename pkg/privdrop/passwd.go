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

// How many fields a line has.
const (
	passwdFields = 7
	groupFields  = 4
)

// entry is a line of passwd(5) or group(5).
type entry struct {
	name        string
	id          uint32
	gid         uint32 // of an account, as the next two
	home, shell string
	members     string // of a group, by commas
}

// parseEntry reads a line that has so many fields, and is neither a comment nor binary.
func parseEntry(line string, fields int) (e entry, ok bool) {
	f := strings.Split(line, ":")
	if len(f) != fields || !validName(f[0]) || f[0][0] == '#' || strings.IndexByte(line, 0) >= 0 {
		return entry{}, false
	}
	id, err := parseID(f[2])
	if fields == groupFields {
		return entry{name: f[0], id: id, members: f[3]}, err == nil
	}
	gid, err2 := parseID(f[3])
	return entry{name: f[0], id: id, gid: gid, home: f[5], shell: f[6]}, err == nil && err2 == nil
}

// parseEntries reads a file. Lines that make no entry are left out, as the C library does; so are those of NIS.
func parseEntries(data []byte, fields int) (all []entry, err error) {
	if len(data) > maxAccountFile {
		return nil, fmt.Errorf("longer than %d bytes", maxAccountFile)
	}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if len(line) > maxAccountLine {
			return nil, fmt.Errorf("line %d is longer than %d bytes", n, maxAccountLine)
		}
		if e, ok := parseEntry(strings.TrimSuffix(string(line), "\n"), fields); ok {
			all = append(all, e)
		}
	}
	return all, nil
}

// validName keeps what would be special in the file, or taken for a number, out of account names.
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
	users, groups         []entry
}

func readAccounts(passwdFile, groupFile string) (a accounts, err error) {
	a.passwdFile, a.groupFile = passwdFile, groupFile
	if a.users, _, err = readEntries(passwdFile, passwdFields); err == nil {
		a.groups, _, err = readEntries(groupFile, groupFields)
	}
	return a, err
}

// readEntries reads a file. One that does not exist is empty.
func readEntries(file string, fields int) (all []entry, data []byte, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err == nil {
		defer f.Close()
		data, err = io.ReadAll(io.LimitReader(f, maxAccountFile+1))
	}
	if err == nil {
		all, err = parseEntries(data, fields)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", file, err)
	}
	return all, data, nil
}

// first is the one that counts of several, as in the C library.
func first(all []entry, is func(entry) bool) (entry, bool) {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i], true
	}
	return entry{}, false
}

func named(name string) func(entry) bool { return func(e entry) bool { return e.name == name } }

func numbered(id uint32) func(entry) bool { return func(e entry) bool { return e.id == id } }

// supplementary lists the groups that name is a member of, without gid, which
// it has anyway, and without group 0, whose files are root's.
func (a accounts) supplementary(name string, gid uint32) (ids []uint32) {
	for _, g := range a.groups {
		if g.id != 0 && g.id != gid && slices.Contains(strings.Split(g.members, ","), name) {
			ids = append(ids, g.id)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	return ids[:min(len(ids), maxGroups)]
}
