package ids

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestDrawGroup(t *testing.T) {
	for name, c := range map[string]struct {
		from  []idRange
		taken []uint32
		ok    bool
		least int // different ones, of 100
	}{
		"a whole system":     {[]idRange{{0, 1<<32 - 1}}, nil, true, 100},
		"the usual rootless": {[]idRange{{0, 1}, {1, 65536}}, []uint32{1000, 65534}, true, 95},
		"a thousand":         {[]idRange{{0, 1000}}, []uint32{100, 101, 102}, true, 60},
		"one":                {[]idRange{{0, 1}}, nil, false, 0},
		"one that is high":   {[]idRange{{70000, 1}}, nil, false, 0},
		"none":               {nil, nil, false, 0},
		"all are low":        {[]idRange{{0, firstGroup}}, nil, false, 0},
		"all are high":       {[]idRange{{1 << 31, 1 << 20}}, nil, false, 0},
		"just too few":       {[]idRange{{0, firstGroup + FewestGroups - 1}}, nil, false, 0},
		"just enough":        {[]idRange{{0, firstGroup + FewestGroups}}, nil, true, 60},
	} {
		t.Run(name, func(t *testing.T) {
			taken := map[uint32]bool{}
			for _, gid := range c.taken {
				taken[gid] = true
			}
			seen := map[uint32]bool{}
			for range 100 {
				gid, ok := drawGroup(c.from, taken)
				if ok != c.ok {
					t.Fatalf("got %d, %t", gid, ok)
				}
				if !ok {
					continue
				}
				if taken[gid] || gid < firstGroup || gid > lastGroup || !mapped(gid, c.from) {
					t.Fatalf("drew %d", gid)
				}
				seen[gid] = true
			}
			if len(seen) < c.least {
				t.Errorf("only %d different ones", len(seen))
			}
		})
	}
}

// TestDrawGroupTaken: what is taken is never drawn, however little is left.
func TestDrawGroupTaken(t *testing.T) {
	from, taken := []idRange{{1000, FewestGroups}}, map[uint32]bool{}
	for i := range uint32(FewestGroups) {
		taken[1000+i] = true
	}
	if gid, ok := drawGroup(from, taken); ok {
		t.Errorf("drew %d of none", gid)
	}
	taken = map[uint32]bool{}
	for i := range uint32(FewestGroups) {
		taken[1000+i] = i%8 != 0
	}
	for range 200 {
		if gid, ok := drawGroup(from, taken); !ok || (gid-1000)%8 != 0 {
			t.Fatalf("drew %d, %t", gid, ok)
		}
	}
}

// TestInUse: no account has the id that is chosen, nor has any process.
func TestInUse(t *testing.T) {
	dir := t.TempDir()
	group, passwd := filepath.Join(dir, "group"), filepath.Join(dir, "passwd")
	running, err := inUse(passwd, group)
	if err != nil || !running[uint32(os.Getuid())] || !running[uint32(os.Getgid())] {
		t.Errorf("without files: %v, %v", running, err)
	}
	for file, text := range map[string]string{
		group:  "root:x:0:\n# a comment\n\nagents:x:1004000:a,b\nbad:x:many:\nshort:x\n",
		passwd: "root:x:0:0:root:/root:/bin/sh\nagent:x:1001000:1005000::/home/agent:/bin/sh\n+::::::\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := inUse(passwd, group)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []uint32{0, 1004000, 1001000, 1005000} {
		if !got[id] {
			t.Errorf("%d is free", id)
		}
	}
	if _, err := inUse(passwd, dir); err == nil {
		t.Error("a directory is no list of groups")
	}
}

func TestOwnGroup(t *testing.T) {
	for name, c := range map[string]struct {
		ids  []idRange
		want uint32
	}{
		"all":                    {[]idRange{{0, 1<<32 - 1}}, 64901},
		"root's and the agent's": {[]idRange{{0, 1}, {1000, 1}}, 1000},
		"one more":               {[]idRange{{0, 1}, {1000, 2}}, 1001},
		"a thousand":             {[]idRange{{0, 1000}}, 1},
		"root's":                 {[]idRange{{0, 1}}, 1000}, // which can't be taken on: the start ends there
	} {
		if got := ownGroup(c.ids, 64901, 1000); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestMappedIDs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gid_map")
	for text, want := range map[string]string{
		"         0          0 4294967295\n":                  "[{0 4294967295}]",
		"         0       1000          1\n 1 100000 65536\n": "[{0 1} {1 65536}]",
		"":      "[]",
		"0 1\n": "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := mappedIDs(file)
		if (err == nil) != (want != "") || err == nil && fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if got, err := mappedIDs(file + ".no"); err != nil || fmt.Sprint(got) != "[{0 4294967295}]" {
		t.Errorf("without namespaces: %v, %v", got, err)
	}
}
