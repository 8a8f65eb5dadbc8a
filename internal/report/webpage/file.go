package webpage

import (
	"io"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/report"
	"github.com/agent-init/agent-init/internal/state"
)

// WriteFile writes the page over the file that is there, or for "-" to out. It goes through no link: root may write into
// a directory of the agent's.
func WriteFile(path string, out io.Writer, r *report.Report) error {
	if path == "-" {
		return Write(out, r)
	}
	f, err := state.OpenPlain(path)
	if err == nil {
		defer f.Close()
		err = f.Truncate(0)
	}
	if err == nil {
		err = Write(f, r)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fault.New(fault.Failure, "name a file that can be written, on a path without links, or -", "write the page: %w", err)
	}
	return nil
}
