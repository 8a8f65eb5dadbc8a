package main

import (
	"errors"
	"flag"
	"io"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/keeper"
)

func parseConfig(t *testing.T, args, env []string) (keeper.Config, error) {
	t.Helper()
	var s settings
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	s.supervise(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return s.read(environment{env: env, stderr: io.Discard})
}

func TestConfigPrecedence(t *testing.T) {
	c, err := parseConfig(t, []string{"--grace", "3s", "--user", "dev"},
		[]string{"AGENT_INIT_USER=other", "AGENT_INIT_SELFTEST=warn", "AGENT_INIT_GRACE=9s", "HOST_UID=1234", "PATH=/bin", "AGENT_INIT_SECRET=x"})
	if err != nil {
		t.Fatal(err)
	}
	if c.User != "dev" || c.Selftest != "warn" || c.Grace != 3*time.Second || c.HostUID != "1234" {
		t.Errorf("got %+v", c)
	}
	if _, leaked := c.Environ["AGENT_INIT_SECRET"]; leaked || c.Environ["PATH"] != "/bin" {
		t.Errorf("the agent's environment is %v", c.Environ)
	}
}

// TestConfigRefusesUnknownWords: a value that is not understood stops the start,
// wherever it comes from; it never means the weaker mode.
func TestConfigRefusesUnknownWords(t *testing.T) {
	for name, tc := range map[string]struct{ args, env []string }{
		"selftest flag":    {args: []string{"--selftest", "no"}},
		"selftest env":     {env: []string{"AGENT_INIT_SELFTEST=0"}},
		"selftest empty":   {env: []string{"AGENT_INIT_SELFTEST="}},
		"mode":             {args: []string{"--mode", "off"}},
		"mode env":         {env: []string{"AGENT_INIT_MODE="}},
		"backend":          {args: []string{"--backend", "none"}},
		"signal target":    {args: []string{"--signal-target", "all"}},
		"log level":        {env: []string{"AGENT_INIT_LOG_LEVEL=loud"}},
		"grace":            {env: []string{"AGENT_INIT_GRACE=soon"}},
		"negative grace":   {env: []string{"AGENT_INIT_GRACE=-1s"}},
		"unsafe, not bool": {env: []string{"AGENT_INIT_UNSAFE_NO_FIREWALL=please"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseConfig(t, tc.args, tc.env)
			var f *fault.Fault
			if !errors.As(err, &f) || f.Code != fault.Usage || f.Remedy == "" {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestKeysHint: a start on a terminal says how the keys are shown.
func TestKeysHint(t *testing.T) {
	for prefix, want := range map[string]string{"ctrl-]": "   Ctrl-] ? shows the keys", "ctrl-b": "   Ctrl-B ? shows the keys", "none": ""} {
		if got := keysHint(prefix); got != want {
			t.Errorf("%s: %q", prefix, got)
		}
	}
}
