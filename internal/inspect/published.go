// Package inspect says to people, and to the programs that they write, what is
// published of a confinement and what its log has: explain, suggest, doctor and log.
package inspect

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Report is what a command has found out: for people by Write, for programs as JSON.
type Report interface {
	Write(w io.Writer, coloured bool) error
}

// published is what everyone can know of the confinement.
type published struct {
	policy *policy.Policy
	dir    string       // of the policy's files
	state  *state.State // nil: no keeper has published any
	leases lease.Report
	probe  ofProbe

	grants  []grant.Grant
	inbound []uint16
}

// readPublished reads what the keeper has published; without one, the files of
// dir.
func readPublished(dir string) (published, error) {
	run, err := state.Find()
	if err != nil {
		return readOpen(published{}, dir)
	}
	out := published{state: &state.State{}, probe: probesOf()}
	if err := run.Read(state.StatusFile, out.state); err != nil {
		return out, state.NotRunning(err)
	}
	if out.state.Phase == state.PhaseOpen {
		return readOpen(out, dir)
	}
	if out.policy, out.dir, out.inbound, err = state.ReadRules(filepath.Join(string(run), state.PolicyFile)); err != nil {
		return out, fault.New(fault.Failure, "see agent-init status", "the policy in force is not published: %w", err)
	}
	if err := run.Read(state.LeasesFile, &out.leases); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, fault.New(fault.Failure, "see agent-init status", "the leases are not published: %w", err)
	}
	var g grant.Report
	if err := run.Read(state.GrantsFile, &g); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, fault.New(fault.Failure, "see agent-init status", "the grants are not published: %w", err)
	}
	out.grants = g.Grants
	return out, nil
}

// readOpen reads the files of dir, where nothing holds them.
func readOpen(out published, dir string) (published, error) {
	p, err := readFiles(policy.ReadOptions{Dir: dir, HostsFile: container.HostsFile("")})
	if err != nil {
		return published{}, err
	}
	out.policy, out.dir, out.inbound = p, dir, state.Inbound(p)
	return out, nil
}

// readFiles reads the policy's files, and takes them for a policy.
func readFiles(o policy.ReadOptions) (*policy.Policy, error) {
	b, err := policy.Read(o)
	if err != nil {
		return nil, container.ReadFault(err)
	}
	p, err := policy.Parse(b, allowlist.Files)
	if err != nil {
		return nil, fault.New(fault.Policy, "see agent-init check", "the policy has errors\n%w", err)
	}
	return p, nil
}

// auditOf is where the log is, and since when agent-init runs: zero if it has
// published nothing.
func auditOf(s *state.State) (file string, started time.Time) {
	if s != nil && s.Audit.File != "" {
		return s.Audit.File, s.Started
	}
	return filepath.Join(state.AuditDir, audit.FileName), time.Time{}
}

// painted is s in a colour of the terminal's, if that is to be seen.
func painted(s, code string, coloured bool) string {
	if !coloured || code == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
