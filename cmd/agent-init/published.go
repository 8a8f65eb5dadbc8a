package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// publishedRule is one line of policy.jsonl, but for the first, which is a
// publishedHead.
type publishedRule struct {
	Rule   string `json:"rule"` // as a line of a policy file
	Source string `json:"source"`
	Preset string `json:"preset,omitempty"`
}

type publishedHead struct {
	Version int    `json:"version"`
	Dir     string `json:"dir"`             // where the files are
	Hosts   []byte `json:"hosts,omitempty"` // the hosts file that counts

	Inbound []uint16 `json:"inbound,omitempty"` // TCP ports that may be connected to from outside
}

// published is what everyone can know of the confinement.
type published struct {
	policy *policy.Policy
	dir    string // of the policy's files
	state  *state // nil: no keeper has published any
	leases leasesReport
	probe  ofProbe

	grants  []grant
	inbound []uint16
}

// readPublished reads what the keeper has published; without one, the files of
// dir.
func readPublished(dir string) (published, error) {
	run, err := findRuntimeDir()
	if err != nil {
		return readOpen(published{}, dir)
	}
	out := published{state: &state{}, probe: probesOf()}
	if err := run.read(statusFile, out.state); err != nil {
		return out, notRunning(err)
	}
	if out.state.Phase == phaseOpen {
		return readOpen(out, dir)
	}
	if out.policy, out.dir, out.inbound, err = readRules(filepath.Join(string(run), policyFile)); err != nil {
		return out, faultf(exitFailure, "see agent-init status", "the policy in force is not published: %w", err)
	}
	if err := run.read(leasesFile, &out.leases); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, faultf(exitFailure, "see agent-init status", "the leases are not published: %w", err)
	}
	var g grantsReport
	if err := run.read(grantsFile, &g); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, faultf(exitFailure, "see agent-init status", "the grants are not published: %w", err)
	}
	out.grants = g.Grants
	return out, nil
}

// readOpen reads the files of dir, where nothing holds them.
func readOpen(out published, dir string) (published, error) {
	b, err := bundleOf(dir, nil)
	if err != nil {
		return published{}, readFault(err)
	}
	p, err := policy.Parse(b, presets())
	if err != nil {
		return published{}, faultf(exitPolicy, "see agent-init check", "the policy has errors\n%w", err)
	}
	out.policy, out.dir, out.inbound = p, dir, inboundOf(p)
	return out, nil
}

// readRules reads policy.jsonl.
func readRules(path string) (*policy.Policy, string, []uint16, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", nil, err
	}
	defer f.Close()
	d := json.NewDecoder(bufio.NewReaderSize(f, 64<<10))
	var head publishedHead
	if err := d.Decode(&head); err != nil {
		return nil, "", nil, fmt.Errorf("read %s: %w", path, causeOf(err))
	}
	var rules []policy.ReportRule
	for {
		var r publishedRule
		err := d.Decode(&r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, "", nil, fmt.Errorf("read %s: %w", path, causeOf(err))
		}
		rules = append(rules, policy.ReportRule{Rule: r.Rule, Source: r.Source, Preset: r.Preset})
	}
	p, err := policy.Rebuild(rules, head.Hosts)
	return p, head.Dir, head.Inbound, err
}

// auditFile is where the audit log is, as far as anybody knows.
func (p published) auditFile() string {
	if p.state != nil && p.state.Audit.File != "" {
		return p.state.Audit.File
	}
	return filepath.Join(auditDir, audit.FileName)
}

// leasesOf are the leases that name has now.
func (p published) leasesOf(name string, now time.Time) (out []openLease) {
	for _, n := range p.leases.Names {
		if n.Name != name {
			continue
		}
		for _, a := range n.Addrs {
			if a.Expires.After(now) {
				out = append(out, a)
			}
		}
	}
	return out
}
