package inspect

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
)

// Verified is what log --verify says. The names of its fields are public.
type Verified struct {
	Version int    `json:"version"`
	File    string `json:"file"`
	audit.Verification
}

// VerifyLog verifies the log, or a copy of it, which has no note of its end. head, if it is not empty, is where it has
// been at some time, as status and the metrics tell it: 17:d9d9….
func VerifyLog(copied, head string) (Verified, error) {
	var s state.State
	if dir, err := state.Find(); err == nil && copied == "" {
		_ = dir.Read(state.StatusFile, &s) // else the log is where it usually is
	}
	return verifyLog(&s, copied, head)
}

func verifyLog(s *state.State, copied, head string) (Verified, error) {
	var known []audit.Head
	if head != "" {
		h, err := headOf(head)
		if err != nil {
			return Verified{}, err
		}
		known = append(known, h)
	}
	file := copied
	if copied == "" {
		if s.Audit.Head.Seq > 0 {
			known = append(known, s.Audit.Head)
		}
		file, _ = auditOf(s)
	}
	v, err := audit.Verify(file, copied == "", known...)
	if err != nil {
		return Verified{}, LogFault(fmt.Errorf("read the audit log: %w", err))
	}
	return Verified{1, file, v}, nil
}

// headOf reads the number of a line, and at least the beginning of its hash.
func headOf(s string) (audit.Head, error) {
	number, hash, _ := strings.Cut(s, ":")
	seq, err := strconv.ParseUint(number, 10, 63)
	if err != nil || seq == 0 || len(hash) < audit.MinHash || strings.Trim(hash, "0123456789abcdef") != "" {
		return audit.Head{}, fault.New(fault.Usage, "give both as agent-init status shows them", "--head %s is not the number of a line and at least %d digits of its hash", s, audit.MinHash)
	}
	return audit.Head{Seq: seq, Hash: hash}, nil
}

// Write shows it to people.
func (v Verified) Write(w io.Writer, coloured bool) error {
	s := &text.Screen{W: w}
	found := text.Counted(len(v.Findings)+v.More, "finding", "findings")
	if v.Whole {
		s.Line("%s", painted("whole", "32", coloured)+": no line is missing, altered, added or in another place")
	} else {
		s.Line("%s", painted("NOT WHOLE", "31", coloured)+": "+found)
	}
	for _, f := range v.Findings {
		s.Line("%-10s%s", f.Kind, text.Clean(lineOf(f)))
	}
	if v.More > 0 {
		s.Line("%-10s%s", "", fmt.Sprintf("and %d more", v.More))
	}
	s.Line("%-10s%s", "file", v.File)
	s.Line("%-10s%s", "lines", fmt.Sprintf("%d, from %d to %d", v.Lines, v.First, v.Head.Seq))
	if v.Unhashed > 0 {
		s.Line("%-10s%s", "", fmt.Sprintf("%d at the beginning have no hashes: an older version has written them", v.Unhashed))
	}
	if v.Lost > 0 {
		s.Line("%-10s%s", "", fmt.Sprintf("%s could not be written, and the log says so", text.Counted(v.Lost, "event", "events")))
	}
	for _, h := range v.Unjudged {
		s.Line("%-10s%s", "", fmt.Sprintf("line %d is older than the log, and can't be judged", h.Seq))
	}
	s.Line("%-10s%d:%s", "head", v.Head.Seq, v.Head.Short())
	return s.Err
}

// lineOf is a finding in words.
func lineOf(f audit.Finding) string {
	which := "something"
	switch {
	case f.From > 0 && f.From == f.To:
		which = fmt.Sprintf("line %d", f.From)
	case f.From > 0:
		which = fmt.Sprintf("lines %d to %d", f.From, f.To)
	}
	if f.File == "" {
		return fmt.Sprintf("%s: %s", which, f.Why)
	}
	return fmt.Sprintf("%s: %s (%s:%d)", which, f.Why, f.File, f.Line)
}
