package main

import (
	"context"
	"flag"
	"io"
	"os"
	"strings"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/detect"
	"github.com/agent-init/agent-init/internal/fault"
)

func detectCommand() command {
	var private bool
	return command{
		name: "detect", words: "npm go apt pip cargo github-meta", synopsis: "[--private] npm|go|apt|pip|cargo|github-meta…",
		summary: "print allowlist entries from this image's own package-manager configuration",
		example: "RUN agent-init detect npm >> /etc/agent-init/allowlist.d/npm.txt\n\n" +
			"Read, in the order that the package manager itself reads them:\n" +
			"  npm    npm_config_*, .npmrc of the project, the user and the prefix, then npm's own default\n" +
			"  go     GOPROXY, GOSUMDB, GONOPROXY and GOPRIVATE as \"go env\" has them, or the environment, GOENV and go.env\n" +
			"  apt    what apt says of sources.list, sources.list.d/*.list and *.sources; lists of mirrors, proxies of apt.conf\n" +
			"  pip    PIP_*, pip.conf of the environment, the user and the system\n" +
			"  cargo  .cargo/config.toml from here upwards, and that of CARGO_HOME\n" +
			"If detect can't understand a setting, it fails and prints nothing. It prints a proxy as a comment: an\n" +
			"entry for it would open whatever the proxy lets through. A server may name further hosts for the packages\n" +
			"themselves; the audit log shows them when they are refused.\n" +
			"github-meta is no package manager: it is the preset @github-meta, the addresses of git at GitHub, for SSH,\n" +
			"as they were when this agent-init was released.",
		flags: func(fs *flag.FlagSet) {
			fs.BoolVar(&private, "private", false, "mark the entries private: the servers have private addresses")
		},
		run: func(ctx context.Context, e environment, args []string) error {
			dir, err := os.Getwd()
			if err != nil {
				return fault.New(fault.Failure, "run it in a directory that exists", "find the working directory: %w", err)
			}
			return runDetect(ctx, e, dir, private, args)
		},
	}
}

// runDetect prints either all that was asked for, or nothing.
func runDetect(ctx context.Context, e environment, dir string, private bool, args []string) error {
	const remedy = "agent-init detect npm|go|apt|pip|cargo|github-meta"
	if len(args) == 0 {
		return fault.New(fault.Usage, remedy, "detect: say which package manager")
	}
	var out strings.Builder
	for _, arg := range args {
		if !detect.Known(arg) {
			return fault.New(fault.Usage, remedy, "detect: unknown package manager %q", arg)
		}
		entries, err := detect.Entries(ctx, container.Environ(e.env), dir, arg, private)
		if err != nil {
			return fault.New(fault.Policy, "correct the configuration, or write the entries by hand", "detect %s: %w", arg, err)
		}
		out.WriteString(entries)
	}
	_, err := io.WriteString(e.stdout, out.String())
	return err
}
