package keeper

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/pkg/policy"
)

// TestAskable: a start is refused where a name is allowed and nobody could be asked, with the cause; else it is not.
func TestAskable(t *testing.T) {
	for _, tc := range []struct {
		list, hosts string
		resolv      policy.Resolv
		says        string // "": it starts
	}{
		{"45.30.9.9:8443", "", policy.Resolv{}, ""},
		{"45.30.9.9:8443\n!bad.test", "", policy.Resolv{Fault: "x"}, ""},
		{"db:5432", "10.0.0.9 db", policy.Resolv{}, ""},
		{"db:5432\nok.test", "10.0.0.9 db", policy.Resolv{}, "ok.test"},
		{"ok.test\n!ok.test", "", policy.Resolv{}, ""},
		{"*.ok.test", "", policy.Resolv{}, "neither /etc/resolv.conf nor dns.upstream"},
		{"ok.test", "", policy.Resolv{Fault: "/etc/resolv.conf: no such file or directory"}, "no such file"},
		{"ok.test", "", policy.Resolv{PassedOver: []string{"127.0.0.53: it is this container itself"}}, "127.0.0.53"},
	} {
		p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "allowlist.txt", Data: []byte(tc.list)}}, Hosts: []byte(tc.hosts), Resolv: tc.resolv}, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = askable(p)
		f := fault.Of(err, "")
		if (err == nil) != (tc.says == "") || err != nil && (f.Code != fault.Policy || f.Remedy == "" || !strings.Contains(f.Error(), tc.says)) {
			t.Errorf("%q: %v, want %q", tc.list, err, tc.says)
		}
	}
}

// TestResolvConfWalk: however resolv.conf comes to be another, it is noticed, and what is read is what root has written
// there. What is gone, garbage, or could be somebody else's, names nobody, and why is known.
func TestResolvConfWalk(t *testing.T) {
	mustrun.Root(t) // files of other owners are refused
	dir := t.TempDir()
	file := filepath.Join(dir, "resolv.conf")
	s := &servers{base: &base{publisher: &publisher{log: slog.New(slog.DiscardHandler)}, mode: "run"}, file: file}
	write := func(path, text string) func() error {
		return func() error { return os.WriteFile(path, []byte(text), 0o644) }
	}
	other := filepath.Join(dir, "other")
	all := func(do ...func() error) func() error {
		return func() (err error) {
			for _, f := range do {
				err = cmp.Or(err, f())
			}
			return err
		}
	}
	remove := func() error { return os.Remove(file) }
	last := filesState(dir, dir, file)
	for _, step := range []struct {
		what           string
		do             func() error
		servers, fault string
	}{
		{"made", write(file, "nameserver 192.0.2.1\nsearch a.test\n"), "[192.0.2.1:53]", ""},
		{"in place", write(file, "nameserver 192.0.2.22\n"), "[192.0.2.22:53]", ""},
		{"by rename", all(write(other, "nameserver 192.0.2.33\n"), func() error { return os.Rename(other, file) }), "[192.0.2.33:53]", ""},
		{"removed", remove, "[]", "not exist"},
		{"garbage", write(file, "nameserver\x00\xff\n"+strings.Repeat("x", 10_000)), "[]", ""},
		{"a link", all(remove, write(other, "nameserver 192.0.2.4\n"), func() error { return os.Symlink(other, file) }), "[192.0.2.4:53]", ""},
		{"what it leads to", write(other, "nameserver 192.0.2.55\n"), "[192.0.2.55:53]", ""},
		{"another's", func() error { return os.Chown(other, 1000, 1000) }, "[]", "1000"},
		{"anybody's", all(func() error { return os.Chown(other, 0, 0) }, func() error { return os.Chmod(other, 0o666) }), "[]", "writable"},
		{"a pipe", all(remove, func() error { return unix.Mkfifo(file, 0o644) }), "[]", "regular"},
		{"a directory", all(remove, func() error { return os.Mkdir(file, 0o755) }), "[]", "directory"},
		{"too long", all(remove, write(file, strings.Repeat("nameserver 192.0.2.1\n", 1<<12))), "[]", "larger"},
		{"good", write(file, "nameserver 192.0.2.1\n"), "[192.0.2.1:53]", ""},
	} {
		if err := step.do(); err != nil {
			t.Fatal(step.what, err)
		}
		now := filesState(dir, dir, file)
		r := s.read()
		if now == last || fmt.Sprint(r.Servers) != step.servers || (step.fault == "") != (r.Fault == "") || !strings.Contains(r.Fault, step.fault) {
			t.Errorf("%s: noticed: %v, read: %+v", step.what, now != last, r)
		}
		last = now
	}
}

// TestResolvConfOfSidecar: in a sidecar's network the agent may write resolv.conf. What it said first counts, and a
// change is told once, whatever follows.
func TestResolvConfOfSidecar(t *testing.T) {
	mustrun.Root(t)
	file := filepath.Join(t.TempDir(), "resolv.conf")
	s := &servers{base: &base{publisher: &publisher{log: slog.New(slog.DiscardHandler)}, mode: "sidecar"}, file: file}
	var last policy.Resolv
	for i, text := range []string{"nameserver 192.0.2.1\n", "nameserver 192.0.2.1\n", "nameserver 192.0.2.66\n", "", "nameserver 192.0.2.1\n"} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		r := s.read()
		if fmt.Sprint(r.Servers) != "[192.0.2.1:53]" || (len(r.PassedOver) == 1) != (i >= 2) || (s.watched() == "") != (i >= 2) {
			t.Errorf("%d: %+v", i, r)
		}
		if i > 2 && !r.Equal(last) {
			t.Errorf("%d: it is told again", i)
		}
		last = r
	}
}
