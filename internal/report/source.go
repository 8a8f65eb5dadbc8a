package report

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// source is what there is to read: of an agent-init that runs, of one that has ended, or of a directory that somebody has
// copied out of its container.
type source struct {
	log    string
	copied bool         // it is somebody's copy
	state  *state.State // nil: none was published
	grants []grant.Grant
	leases []lease.Name
	plan   selftest.Plan

	policy    *policy.Policy // nil: none was published
	policyDir string
	inbound   []uint16
}

// find finds what is published where agent-init runs, or what lies in dir.
func find(dir string) (*source, error) {
	s := &source{log: filepath.Join(state.AuditDir, audit.FileName)}
	run, err := state.Find()
	if dir != "" {
		s.copied, s.log = true, filepath.Join(dir, audit.FileName)
		run, err = state.Dir(dir), nil
	}
	if err != nil { // the log outlives who wrote it
		return s, nil
	}
	var st state.State
	var g grant.Report
	var l lease.Report
	readErr := errors.Join(
		optional(run.Read(state.StatusFile, &st), func() { s.state = &st }),
		optional(run.Read(state.GrantsFile, &g), func() { s.grants = g.Grants }),
		optional(run.Read(state.LeasesFile, &l), func() { s.leases = l.Names }),
		optional(run.Read(state.ProbesFile, &s.plan), func() {}),
	)
	p, from, inbound, err := state.ReadRules(filepath.Join(string(run), state.PolicyFile))
	readErr = errors.Join(readErr, optional(err, func() { s.policy, s.policyDir, s.inbound = p, from, inbound }))
	if readErr != nil {
		return nil, fault.New(fault.Failure, "copy the files again, or leave out the one that is named", "what is published can't be read: %w", readErr)
	}
	if !s.copied && st.Audit.File != "" {
		s.log = st.Audit.File
	}
	return s, nil
}

// optional has a file be missing: a copied log need not have them with it.
func optional(err error, have func()) error {
	if err == nil {
		have()
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

// live says whether what is published is of an agent-init that is at work.
func (s *source) live() bool { return !s.copied && s.state != nil && s.state.Keeper.Alive() }

// judge is the policy, or an empty one where none is known.
func (s *source) judge() *policy.Policy {
	if s.policy != nil {
		return s.policy
	}
	p, _ := policy.Rebuild(nil, nil, policy.Resolv{}, nil, route.Proxy{}, nil) // nothing in it can be wrong
	return p
}

// torn says whether the last line of the log has no end, as when its disk was full, or it was copied as it was written.
func torn(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	st, err := f.Stat()
	var last [1]byte
	if err != nil || st.Size() == 0 {
		return false
	}
	_, err = f.ReadAt(last[:], st.Size()-1)
	return err == nil && last[0] != '\n'
}
