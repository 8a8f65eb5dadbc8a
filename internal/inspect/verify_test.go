package inspect

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab/golden"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
)

// publishedLog is a log of n lines that a keeper has written, and its status.
func publishedLog(t *testing.T, n int) (s state.State) {
	t.Helper()
	dir := t.TempDir()
	l, err := audit.Open(audit.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range n {
		l.Write(audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: fmt.Sprintf("n%d.example", i)})
	}
	s.Audit = state.Audit{File: filepath.Join(dir, audit.FileName), Head: l.Head()}
	return s
}

// TestVerifyLog: the log is held against its note, against the status, and against what the operator has kept.
func TestVerifyLog(t *testing.T) {
	s := publishedLog(t, 20)
	file, head := s.Audit.File, s.Audit.Head
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cut := data[:bytes.LastIndexByte(data[:len(data)-1], '\n')+1]
	copied := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(copied, cut, 0o644); err != nil {
		t.Fatal(err)
	}
	check := func(what string, whole bool, copied, head string) {
		t.Helper()
		if v, err := verifyLog(&s, copied, head); err != nil || v.Whole != whole {
			t.Errorf("%s: %+v, %v", what, v, err)
		}
	}
	at := fmt.Sprintf("%d:%s", head.Seq, head.Short())
	check("as it is", true, "", at)
	check("another head", false, "", fmt.Sprintf("19:%s", head.Short()))
	check("a copy without its end", true, copied, "")
	check("a copy without its end, and the head", false, copied, at)
	if err := os.WriteFile(file, cut, 0o644); err != nil {
		t.Fatal(err)
	}
	check("cut", false, "", "")
	// Whoever forges the note as well has the status to forge.
	note := filepath.Join(filepath.Dir(file), audit.HeadName)
	if err := os.WriteFile(note, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	v, err := verifyLog(&s, "", "")
	if err != nil || !slices.ContainsFunc(v.Findings, func(f audit.Finding) bool { return f.Kind == audit.Missing && f.From == 20 }) {
		t.Errorf("cut, without a note: %+v, %v", v, err)
	}
	for _, bad := range []string{"17", "x:" + head.Hash, "0:" + head.Hash, "17:" + head.Hash[:10], "17:" + strings.Repeat("z", 64)} {
		if _, err := verifyLog(&s, "", bad); err == nil {
			t.Errorf("--head %s is taken", bad)
		}
	}
	if _, err := verifyLog(&s, filepath.Join(t.TempDir(), "none"), ""); err == nil {
		t.Error("a log that is not there is verified")
	}
}

// TestVerifiedShown: what people and programs get to see.
func TestVerifiedShown(t *testing.T) {
	hash := strings.Repeat("0123456789abcdef", 4)
	v := Verified{1, "/var/log/agent-init/audit.jsonl", audit.Verification{
		Lines: 94, First: 3, Head: audit.Head{Seq: 100, Hash: hash}, Unhashed: 2, Lost: 1, Unjudged: []audit.Head{{Seq: 2, Hash: hash}}, More: 3,
		Findings: []audit.Finding{
			{Kind: audit.Altered, From: 17, To: 17, File: "/var/log/agent-init/audit.jsonl.1", Line: 15, Why: "line 18 follows another line 17"},
			{Kind: audit.Missing, From: 20, To: 24, File: "/var/log/agent-init/audit.jsonl", Line: 1, Why: "line 25 follows line 19"},
			{Kind: audit.Added, File: "/var/log/agent-init/audit.jsonl", Line: 9, Why: "a line without a number and a hash"},
			{Kind: audit.Missing, From: 101, To: 103, Why: "the log ends before"},
		},
	}}
	golden.JSON(t, "verify.golden.json", v)
	golden.Screens(t, "verify.screens.txt", "          ", func(w io.Writer) error { return v.Write(w, false) })
	whole := Verified{1, v.File, audit.Verification{Whole: true, Lines: 3, First: 1, Head: audit.Head{Seq: 3, Hash: hash}}}
	var b strings.Builder
	if err := whole.Write(&b, true); err != nil || !strings.HasPrefix(b.String(), "\x1b[32mwhole\x1b[0m: ") {
		t.Errorf("%q, %v", b.String(), err)
	}
}
