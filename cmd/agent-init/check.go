package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/policy"
)

func checkCommand() command {
	var dir string
	var effective, path bool
	return command{
		name: "check", synopsis: "[--effective] [--json] [--path] [FILE…|-]", json: "print errors, warnings and the policy as JSON",
		summary: "check policy and allowlist files, without a privilege and without the network",
		example: "agent-init check --effective allowlist.txt",
		flags: func(fs *flag.FlagSet) {
			policyDir(fs, &dir, "`DIR` to check if no file is given")
			fs.BoolVar(&effective, "effective", false, "print the merged policy, presets expanded")
			fs.BoolVar(&path, "path", false, "also check that only root can replace this program, or put another one before it on PATH")
		},
		run: func(_ context.Context, e environment, args []string) error {
			if path {
				if err := container.ProgramPathFault(container.Environ(e.env)["PATH"]); err != nil {
					return err
				}
			}
			b, err := bundleOf(dir, args)
			if err != nil {
				return container.ReadFault(err)
			}
			return check(e, b, effective)
		},
	}
}

// maxCheckFile is the size of a file that is still read, in bytes.
const maxCheckFile = 64 << 20

// bundleOf reads the named files as they are: whose they are matters only where
// they are in force.
func bundleOf(dir string, files []string) (*policy.Bundle, error) {
	if len(files) == 0 {
		return policy.Read(policy.ReadOptions{Dir: dir, HostsFile: container.HostsFile("")})
	}
	b := &policy.Bundle{}
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

type checkReport struct {
	Version  int              `json:"version"`
	OK       bool             `json:"ok"`
	Errors   policy.ErrorList `json:"errors"`
	Warnings []policy.Error   `json:"warnings"`
	Counts   *policy.Counts   `json:"counts,omitempty"`
	Policy   *policy.Report   `json:"policy,omitempty"`
}

func check(e environment, b *policy.Bundle, effective bool) error {
	r := checkReport{Version: 1, Errors: policy.ErrorList{}, Warnings: []policy.Error{}}
	p, err := policy.Parse(b, allowlist.Files)
	switch {
	case err == nil:
		r.OK = true
		c := p.Counts()
		r.Counts = &c
		r.Warnings = append(r.Warnings, p.Warnings()...)
		if effective {
			report := p.Report()
			r.Policy = &report
		}
	case !errors.As(err, &r.Errors):
		return fault.New(fault.Policy, "see agent-init check --help", "%w", err)
	}
	if e.json {
		err = text.JSON(e.stdout, r)
	} else {
		err = r.write(e, p, effective)
	}
	if err == nil && !r.OK {
		return fault.Status(fault.Policy)
	}
	return err
}

func (r checkReport) write(e environment, p *policy.Policy, effective bool) error {
	for _, w := range r.Warnings {
		fmt.Fprintf(e.stderr, "%v (warning)\n", w)
	}
	if !r.OK {
		fmt.Fprintln(e.stderr, r.Errors)
		return nil
	}
	if effective {
		return p.WriteEffective(e.stdout)
	}
	_, err := fmt.Fprintf(e.stdout, "ok: %s, %s, %d required\n",
		text.Counted(r.Counts.Files, "file", "files"), state.SizeOf(*r.Counts), r.Counts.Required)
	return err
}

// version is set by the linker.
var version = "dev"

func versionCommand() command {
	return command{
		name: "version", alone: true, summary: "show the version",
		example: "agent-init version",
		run: func(_ context.Context, e environment, _ []string) error {
			goVersion := ""
			if info, ok := debug.ReadBuildInfo(); ok {
				goVersion = info.GoVersion
			}
			_, err := fmt.Fprintf(e.stdout, "agent-init %s (%s)\n", version, goVersion)
			return err
		},
	}
}
