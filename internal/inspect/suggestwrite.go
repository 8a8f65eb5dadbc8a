package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
)

// Write prints lines that can be appended to an allowlist as they are.
func (r Suggestions) Write(out io.Writer, _ bool) error {
	now := time.Now()
	w := &text.Screen{W: out}
	if len(r.Lines) == 0 {
		w.Line("# nothing was denied that a line would allow")
	} else {
		w.Line("# Read each line before you add it: the agent chose these names.")
	}
	group := ""
	for _, g := range r.Lines {
		head := g.Group
		if g.Preset != "" {
			head = "@" + g.Preset
		}
		if head != group {
			group = head
			if g.Preset != "" {
				w.Line("\n# the service %s: @%[1]s in place of these lines allows all of it", g.Preset)
			} else {
				w.Line("\n# %s", head)
			}
		}
		w.Line("%s", g.text(now))
	}
	for i, g := range r.Denied {
		if i == 0 {
			w.Line("\n# denied by a rule; no line would allow these:")
		}
		w.Line("# %s", g.text(now))
	}
	if r.More > 0 {
		w.Line("\n# and %d more, which are left out", r.More)
	}
	return w.Err
}

func (g suggestion) text(now time.Time) string {
	s := fmt.Sprintf("%-32s # %s, first %s", g.Line, text.Times(g.Count), text.Moment(g.First, now))
	if g.By != "" {
		s += " by " + g.By
	}
	if len(g.Or) > 0 {
		s += "; or " + text.Clean(strings.Join(g.Or, ", ")) + ", at the same address"
	}
	return s
}

// Append adds the lines to a file, and says to out which, and to errs how many.
func (r Suggestions) Append(path string, out, errs io.Writer) error {
	have := map[string]bool{}
	f, err := state.OpenPlain(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Failure, "make the directory first, or give a file elsewhere", "there is no directory %s", filepath.Dir(path))
	}
	if err != nil {
		return fault.New(fault.Failure, "name a file that can be written, on a path without links", "%w", err)
	}
	defer f.Close()
	old, err := io.ReadAll(f)
	if err != nil {
		return fault.New(fault.Failure, "name a file that can be written, on a path without links", "%w", err)
	}
	for line := range strings.Lines(string(old)) {
		entry, _, _ := strings.Cut(line, "#")
		have[strings.TrimSpace(entry)] = true
	}
	var b bytes.Buffer
	if len(old) > 0 && old[len(old)-1] != '\n' {
		b.WriteByte('\n')
	}
	added := 0
	for _, g := range r.Lines {
		if !have[g.Line] {
			fmt.Fprintln(&b, g.text(time.Time{})) // it is read on other days
			fmt.Fprintf(out, "%s\n", g.Line)
			added++
		}
	}
	if added > 0 {
		if _, err := f.Write(b.Bytes()); err != nil {
			return fault.New(fault.Failure, "name a file that can be written, on a path without links", "%w", err)
		}
	}
	_, err = fmt.Fprintf(errs, "%s added to %s; already in it: %d\n", text.Counted(added, "line", "lines"), path, len(r.Lines)-added)
	return err
}
