package privdrop

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const passwd = `root:x:0:0:root:/root:/bin/bash
# a comment
+nis::::::
node:x:1001:1001::/home/node:/bin/bash
agent:x:1000:1000:Agent:/home/agent:/bin/zsh
agent:x:7:7:a second line of the name:/:/bin/false
rooted:x:1005:0::/home/rooted:/bin/sh
broken:x:1006
1234:x:1007:1007::/:/bin/sh
bare:x:1008:1008:::
`

const groups = `root:x:0:rooted,agent
video:x:44:agent,node
staff:x:20:agent
agent:x:1000:
node:x:1001:agent
`

func files(t *testing.T) (passwdFile, groupFile string) {
	t.Helper()
	dir := t.TempDir()
	passwdFile, groupFile = filepath.Join(dir, "passwd"), filepath.Join(dir, "group")
	for name, text := range map[string]string{passwdFile: passwd, groupFile: groups} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return passwdFile, groupFile
}

func TestLookup(t *testing.T) {
	agent := Identity{UID: 1000, GID: 1000, Groups: []uint32{20, 44, 1001}, Name: "agent", Home: "/home/agent", Shell: "/bin/zsh"}
	node := Identity{UID: 1001, GID: 1001, Groups: []uint32{44}, Name: "node", Home: "/home/node", Shell: "/bin/bash"}
	with := func(id Identity, uid, gid uint32, groups ...uint32) Identity {
		id.UID, id.GID, id.Groups = uid, gid, groups
		return id
	}
	for _, c := range []struct {
		name string
		o    LookupOptions
		want Identity
		err  string
	}{
		{"nothing said", LookupOptions{}, agent, ""},
		{"auto", LookupOptions{Spec: "auto"}, agent, ""},
		{"name", LookupOptions{Spec: "node"}, node, ""},
		{"uid", LookupOptions{Spec: "1001"}, node, ""},
		{"uid and gid", LookupOptions{Spec: "1001:20"}, with(node, 1001, 20, 44), ""},
		{"uid and group", LookupOptions{Spec: "1001:staff"}, with(node, 1001, 20, 44), ""},
		{"name and group", LookupOptions{Spec: "agent:node"}, with(agent, 1000, 1001, 20, 44), ""},
		{"name and unknown gid", LookupOptions{Spec: "agent:777"}, with(agent, 1000, 777, 20, 44, 1001), ""},
		// An unknown uid never ends up in root's group.
		{"unknown uid", LookupOptions{Spec: "4242"}, with(agent, 4242, 4242, 20, 44, 1001), ""},
		{"no home, no shell", LookupOptions{Spec: "bare"}, Identity{1008, 1008, nil, "bare", "/home/agent", "/bin/sh"}, ""},
		{"group 0 made another", LookupOptions{Spec: "rooted:20"}, Identity{1005, 20, nil, "rooted", "/home/rooted", "/bin/sh"}, ""},

		{"host uid", LookupOptions{HostUID: "501", HostGID: "20"}, with(agent, 501, 20, 44, 1001), ""},
		{"host uid alone", LookupOptions{HostUID: "501"}, with(agent, 501, 501, 20, 44, 1001), ""},
		{"host uid of another account", LookupOptions{HostUID: "1001"}, node, ""},
		{"host gid alone", LookupOptions{HostGID: "20"}, with(agent, 1000, 20, 44, 1001), ""},
		{"host root", LookupOptions{HostUID: "0", HostGID: "0"}, agent, ""},
		{"explicit beats host uid", LookupOptions{Spec: "node", HostUID: "501"}, node, ""},

		{"root", LookupOptions{Spec: "root"}, Identity{}, "uid 0"},
		{"uid 0", LookupOptions{Spec: "0:1000"}, Identity{}, "uid 0"},
		{"00", LookupOptions{Spec: "00"}, Identity{}, "uid 0"},
		{"gid 0", LookupOptions{Spec: "1000:0"}, Identity{}, "group 0"},
		{"group root", LookupOptions{Spec: "agent:root"}, Identity{}, "group 0"},
		{"an account in group 0", LookupOptions{Spec: "rooted"}, Identity{}, "group 0"},
		{"unknown name", LookupOptions{Spec: "nobody-here"}, Identity{}, "not in"},
		{"unknown group", LookupOptions{Spec: "agent:nogroup"}, Identity{}, "not in"},
		{"empty group", LookupOptions{Spec: "agent:"}, Identity{}, "not in"},
		{"no user", LookupOptions{Spec: ":20"}, Identity{}, "not in"},
		{"-1", LookupOptions{Spec: "4294967295"}, Identity{}, "not an id"},
		{"too large", LookupOptions{Spec: "4294967296"}, Identity{}, "not an id"},
		{"gid -1", LookupOptions{Spec: "1000:4294967295"}, Identity{}, "not an id"},
		{"negative", LookupOptions{Spec: "-5"}, Identity{}, "not in"},
		{"host uid is no number", LookupOptions{HostUID: "me"}, Identity{}, "HOST_UID"},
		{"host gid is no number", LookupOptions{HostGID: "+5"}, Identity{}, "HOST_GID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Log = slog.New(slog.DiscardHandler)
			got, err := c.o.lookup(files(t))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%+v, error %v; want an error with %q", got, err, c.err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, error %v\nwant %+v", got, err, c.want)
			}
		})
	}
}

func TestLookupWithoutAccounts(t *testing.T) {
	got, err := LookupOptions{}.lookup("/nonexistent/passwd", "/nonexistent/group")
	want := Identity{UID: 1000, GID: 1000, Name: "agent", Home: "/home/agent", Shell: "/bin/sh"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, error %v", got, err)
	}
}

func TestParsePasswdBounds(t *testing.T) {
	if _, err := parseEntries(make([]byte, maxAccountFile+1), passwdFields); err == nil {
		t.Error("a huge file passed")
	}
	if _, err := parseEntries([]byte("a:x:1:1:"+strings.Repeat("x", maxAccountLine)+":/:/bin/sh\n"), passwdFields); err == nil {
		t.Error("a huge line passed")
	}
}

func FuzzParsePasswd(f *testing.F) {
	f.Add([]byte(passwd))
	f.Add([]byte("agent:x:4294967295:0:::\n:x:1:1:::\na:x:+1:1:::"))
	f.Add([]byte("agent:x:1000:1000::/home/agent:/bin/sh"))
	f.Fuzz(func(t *testing.T, data []byte) {
		users, err := parseEntries(data, passwdFields)
		if err != nil {
			return
		}
		for _, u := range users {
			if !validName(u.name) || u.id == noID || u.gid == noID || strings.ContainsAny(u.home+u.shell, ":\n\x00") {
				t.Errorf("account %+v", u)
			}
		}
		// What we write is found again, and nobody else's line changes.
		id := Identity{UID: 4242, GID: 4343, Name: "agent", Home: "/home/agent", Shell: "/bin/sh"}
		text, err := withEntry(data, id)
		if err != nil || len(text) > maxAccountFile {
			return
		}
		after, err := parseEntries(text, passwdFields)
		if err != nil {
			return
		}
		u, ok := first(after, named("agent"))
		if !ok || u.id != 4242 || u.gid != 4343 {
			t.Errorf("wrote %q, found %+v", text, u)
		}
		others := func(all []entry) []entry {
			return slices.DeleteFunc(slices.Clone(all), func(u entry) bool { return u.name == "agent" })
		}
		if !slices.Equal(others(users), others(after)) {
			t.Errorf("other accounts changed: %+v, then %+v", users, after)
		}
	})
}

func TestEnsureEntry(t *testing.T) {
	for _, c := range []struct {
		name, before, after string
		id                  Identity
	}{
		{"known", passwd, passwd, Identity{UID: 1001, GID: 1001, Name: "node"}},
		{"empty", "", "agent:x:5:6::/home/agent:/bin/sh\n", Identity{5, 6, nil, "agent", "/home/agent", "/bin/sh"}},
		{"no newline at the end", "root:x:0:0::/:/bin/sh", "root:x:0:0::/:/bin/sh\nagent:x:5:6::/home/agent:/bin/sh\n", Identity{5, 6, nil, "agent", "/home/agent", "/bin/sh"}},
		{"moved", "agent:x:1000:1000:Agent:/home/agent:/bin/zsh\nroot:x:0:0::/:/bin/sh\n", "agent:x:501:20:Agent:/home/agent:/bin/zsh\nroot:x:0:0::/:/bin/sh\n",
			Identity{501, 20, nil, "agent", "/home/agent", "/bin/zsh"}},
	} {
		file := filepath.Join(t.TempDir(), "passwd")
		if err := os.WriteFile(file, []byte(c.before), 0o640); err != nil {
			t.Fatal(err)
		}
		if err := ensureEntry(c.id, file); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != c.after {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.after)
		}
		if info, err := os.Stat(file); err != nil || info.Mode() != 0o640 {
			t.Errorf("%s: mode %v, %v", c.name, info.Mode(), err)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); len(left) > 0 {
			t.Errorf("%s: left %q", c.name, left)
		}
	}
	for _, id := range []Identity{
		{5, 6, nil, "a:b", "/", "/bin/sh"}, {5, 6, nil, "agent", "/x\nroot::0:0", "/bin/sh"}, {5, 6, nil, "agent", "/", "/bin/sh:"}, {5, 6, nil, "", "/", "/bin/sh"},
	} {
		if text, err := withEntry(nil, id); err == nil {
			t.Errorf("wrote %q", text)
		}
	}
}

// E73: a link in the place of the file is not written through.
func TestE73PasswdLink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "passwd")
	if err := os.WriteFile(target, []byte("root:x:0:0::/:/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := ensureEntry(Identity{5, 6, nil, "agent", "/", "/bin/sh"}, link); err == nil {
		t.Error("no error")
	}
	if got, _ := os.ReadFile(target); string(got) != "root:x:0:0::/:/bin/sh\n" {
		t.Errorf("the target became %q", got)
	}
}

func TestRequire(t *testing.T) {
	have, err := getCaps()
	if err != nil {
		t.Fatal(err)
	}
	for c := range 41 {
		err := Require(c)
		lack := (*CapabilityError)(nil)
		if errors.As(err, &lack) != (have[c/32].Effective&(1<<(c%32)) == 0) {
			t.Errorf("capability %d of %x: %v", c, have, err)
		}
	}
	if got := missing(unix.CAP_SETPCAP).Error(); !strings.Contains(got, "--cap-add=SETPCAP") {
		t.Error(got)
	}
}
