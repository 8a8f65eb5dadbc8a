package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestSocketUIDs(t *testing.T) {
	const tcp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	const line = "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 %s        0 123 1 ffff 100 0 0 10 0\n"
	const packet = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\nffff888 3      3    0003   2     1 0      64903  456\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
		fails bool
	}{
		"no tables":     {want: "[]"},
		"no sockets":    {map[string]string{"tcp": tcp}, "[]", false},
		"of two tables": {map[string]string{"tcp": tcp + fmt.Sprintf(line, " 1000") + fmt.Sprintf(line, "64901"), "udp6": tcp + fmt.Sprintf(line, "64902"), "packet": packet}, "[1000 64901 64902 64903]", false},
		"too short":     {map[string]string{"tcp": tcp + "0: 1\n"}, "", true},
		"no number":     {map[string]string{"raw": tcp + fmt.Sprintf(line, "root")}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range c.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			uids, err := socketUIDs(dir)
			if (err != nil) != c.fails {
				t.Fatalf("got %v", err)
			}
			if got := fmt.Sprint(slices.Sorted(maps.Keys(uids))); err == nil && got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
