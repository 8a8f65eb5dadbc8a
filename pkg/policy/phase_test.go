package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// phased is a policy with two phases.
func phased(phase, setup, verify string) *Bundle {
	return &Bundle{Phase: phase, Files: []File{{"policy.yaml", []byte("domains: [run.test]\ndeny: [never.test]\n")}}, Phases: map[string][]File{
		Setup: {{"phases/setup/a.txt", []byte(setup)}}, Verify: {{"phases/verify/a.yaml", []byte(verify)}},
	}}
}

// TestPhases: a phase adds to the policy, denies in it, and opens nothing that the policy denies. Sealed has nothing.
func TestPhases(t *testing.T) {
	for phase, want := range map[string]string{
		"": "run.test", Run: "run.test", Setup: "run.test setup.test", Verify: "verify.test", Sealed: "",
	} {
		p, err := Parse(phased(phase, "setup.test\nnever.test\n", "domains: [verify.test]\ndeny: [run.test]\n"), nil)
		if err != nil {
			t.Fatal(phase, err)
		}
		var got []string
		for _, name := range []string{"run.test", "setup.test", "verify.test", "never.test"} {
			if p.Lookup(name).Allowed {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q allows %q, want %q", phase, got, want)
		}
	}
	b := phased(Setup, "setup.test\n45.0.0.1\n", "")
	b.Ceiling = []File{{"ceiling.d/a.txt", []byte("run.test\n")}}
	p, err := Parse(b, nil)
	if err != nil || p.Lookup("setup.test").Allowed || len(p.Static) > 0 || len(p.Cuts()) != 2 {
		t.Errorf("above the ceiling: %v, %v", p.Cuts(), err)
	}
	p, err = Parse(phased(Setup, "setup.test\n", ""), nil)
	if err != nil || p.Counts().Files != 2 || p.Lookup("setup.test").Rule.Source.String() != "phases/setup/a.txt:1" {
		t.Errorf("the entry is at %v, %v", p.Lookup("setup.test").Rule, err)
	}
}

// TestCheckPhases: what is wrong in one phase is found in every other.
func TestCheckPhases(t *testing.T) {
	for name, tt := range map[string]struct{ setup, verify, want string }{
		"right":      {"a.test\n", "domains: [b.test]\n", ""},
		"empty":      {"", "", ""},
		"no entry":   {"*.com\n", "", "phases/setup/a.txt:1:1: the wildcard covers a public suffix"},
		"everything": {"0.0.0.0/0\n", "", "this allows everything"},
		"a request":  {"a.test GET /x\n", "", "phases/setup/a.txt:1:1: a phase opens names and addresses whole"},
		"observed":   {"a.test observe\n", "", "a phase opens names and addresses whole"},
		"a user":     {"", "user: root\n", "phases/verify/a.yaml:1:1: unknown key"},
		"a route":    {"", "broker: {anthropic: {}}\n", "unknown key"},
		"inbound":    {"", "inbound: [22]\n", "unknown key"},
		"a phase":    {"", "phase: setup\n", "unknown key"},
	} {
		for _, at := range []string{Setup, Run, Verify, Sealed} {
			b := phased(at, tt.setup, tt.verify)
			p, err := Parse(b, nil)
			if err == nil {
				err = p.CheckPhases(b, nil)
			}
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%s, in %s: %v, want %q", name, at, err, tt.want)
			}
		}
	}
}

// TestReadPhases: the directories of phases are read as allowlist.d is, and the file of the phase has one of three words.
func TestReadPhases(t *testing.T) {
	mustrun.Root(t) // whose a policy is
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, data string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (*Bundle, error) { return Read(ReadOptions{Dir: dir}) }
	if b, err := read(); err != nil || b.Phases != nil {
		t.Errorf("without phases: %v, %v", b, err)
	}
	write("phases/setup/b.txt", "b.test\n")
	write("phases/setup/a.yaml", "domains: [a.test]\n")
	write("phases/setup/..data/x.txt", "x.test\n")
	if err := os.MkdirAll(filepath.Join(dir, "phases/verify"), 0o755); err != nil {
		t.Fatal(err)
	}
	old, err := read()
	if err != nil || len(old.Phases[Setup]) != 2 || old.Phases[Setup][0].Name != "phases/setup/a.yaml" || old.Phases[Verify] == nil {
		t.Fatalf("read %v, %v", old, err)
	}
	write("phases/setup/b.txt", "c.test\n")
	if b, err := read(); err != nil || strings.Join(b.Differs(old), " ") != "phases/setup/b.txt" {
		t.Errorf("a change is not seen: %v", err)
	}
	write("phases/run/a.txt", "a.test\n")
	if _, err := read(); err == nil || !strings.Contains(err.Error(), "the policy itself") {
		t.Errorf("phases/run: %v", err)
	}
	if said, err := ReadPhase(dir); said != "" || err != nil {
		t.Errorf("no file: %q, %v", said, err)
	}
	for text, want := range map[string]string{"setup": Setup, " run\n": Run, "verify\r\n": Verify, "": "!", "sealed": "!", "run verify": "!", "Run": "!", strings.Repeat("x", 1<<20): "!"} {
		write("phase", text)
		said, err := ReadPhase(dir)
		if said == want && err == nil || want == "!" && err != nil {
			continue
		}
		t.Errorf("%.20q: %q, %v", text, said, err)
	}
	if err := os.Chmod(filepath.Join(dir, "phase"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPhase(dir); err == nil || !strings.Contains(err.Error(), "writable by everyone") {
		t.Errorf("whoever writes it: %v", err)
	}
}
