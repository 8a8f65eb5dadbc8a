package stage

import (
	"os"
	"path/filepath"
	"slices"
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
				gid, ok := drawGroup(drawable(c.from), taken)
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

func TestAccountGroups(t *testing.T) {
	dir := t.TempDir()
	group, passwd := filepath.Join(dir, "group"), filepath.Join(dir, "passwd")
	got, err := accountGroups(group, passwd)
	if err != nil || len(got) > 0 {
		t.Errorf("without files: %v, %v", got, err)
	}
	for file, text := range map[string]string{
		group:  "root:x:0:\n# a comment\n\nagents:x:4000:a,b\nbad:x:many:\nshort:x\n",
		passwd: "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:5000::/home/agent:/bin/sh\n+::::::\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err = accountGroups(group, passwd)
	if want := []uint32{0, 4000, 0, 5000}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if _, err := accountGroups(dir, passwd); err == nil {
		t.Error("a directory is no list of groups")
	}
}
