package inspect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Checked is what check finds in policy files.
type Checked struct {
	Version  int              `json:"version"`
	OK       bool             `json:"ok"`
	Errors   policy.ErrorList `json:"errors"`
	Warnings []policy.Error   `json:"warnings"`
	Counts   *policy.Counts   `json:"counts,omitempty"`
	Routes   []checkedRoute   `json:"routes,omitempty"`
	Policy   *policy.Report   `json:"policy,omitempty"`
	checkedWays

	merged *policy.Policy // of Policy
}

// Check reads the named files, or those of dir, below the ceiling of another, and judges them: whether they are a policy, and what it comes to.
// effective has the policy as well, presets expanded.
func Check(dir, ceiling string, files []string, effective bool) (Checked, error) {
	b, err := bundleOf(dir, ceiling, files)
	if err != nil {
		return Checked{}, container.ReadFault(err)
	}
	c := Checked{Version: 1, Errors: policy.ErrorList{}, Warnings: []policy.Error{}}
	p, err := policy.Parse(b, allowlist.Files)
	if err == nil {
		err = p.CheckPhases(b, allowlist.Files)
	}
	switch {
	case err == nil:
		c.OK = true
		c.Counts, c.Routes, c.checkedWays = new(p.Counts()), checkedRoutes(p.Routes()), waysOf(p)
		c.Warnings = append(c.Warnings, p.Warnings...)
		if effective {
			c.Policy, c.merged = new(p.Report()), p
		}
	case !errors.As(err, &c.Errors):
		return Checked{}, fault.New(fault.Policy, "see agent-init check --help", "%w", err)
	}
	return c, nil
}

const maxCheckFile = 64 << 20 // bytes

// bundleOf reads the named files: whose they are matters only where they are in force.
func bundleOf(dir, ceiling string, files []string) (*policy.Bundle, error) {
	if len(files) == 0 {
		return policy.Read(policy.ReadOptions{Dir: dir, HostsFile: container.HostsFile(""), SavedFile: state.SavedFile, Ceiling: ceiling, SeenFile: state.SeenFile})
	}
	b, err := policy.ReadCeiling(policy.ReadOptions{Ceiling: ceiling, SeenFile: state.SeenFile})
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		f, err := os.Stdin, error(nil)
		if name != "-" {
			f, err = os.Open(name)
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(io.LimitReader(f, maxCheckFile+1))
		f.Close()
		if err != nil {
			return nil, err
		}
		if len(data) > maxCheckFile {
			return nil, fmt.Errorf("%s is larger than %d MiB", name, maxCheckFile>>20)
		}
		b.Files = append(b.Files, policy.File{Name: name, Data: data})
	}
	return b, nil
}

// Print shows it to people, each line whole, and what is wrong beside the rest.
func (c Checked) Print(out, beside io.Writer) error {
	for _, w := range c.Warnings {
		fmt.Fprintf(beside, "%v (warning)\n", w)
	}
	for _, e := range c.Errors {
		fmt.Fprintln(beside, e)
	}
	if len(c.Errors) > 0 {
		return nil
	}
	if c.merged != nil {
		return c.merged.WriteEffective(out)
	}
	w := &text.Screen{W: text.Folded(out, strings.Repeat(" ", 15))}
	w.Line("ok: %s, %s, %d required", text.Counted(c.Counts.Files, "file", "files"), state.SizeOf(*c.Counts), c.Counts.Required)
	for _, route := range c.Routes {
		route.write(w)
	}
	c.checkedWays.write(w)
	return w.Err
}
