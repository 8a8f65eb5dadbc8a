package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
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
		return keeper.Config{}, fault.New(fault.Usage, "see --help", "%w", err)
	}
	return s.read(environment{env: env, stderr: io.Discard})
}

func TestConfigPrecedence(t *testing.T) {
	c, err := parseConfig(t, []string{"--grace", "3s", "--user", "dev"},
		[]string{"AGENT_INIT_USER=other", "AGENT_INIT_SELFTEST=warn", "AGENT_INIT_GRACE=9s", "HOST_UID=1234", "PATH=/bin", "AGENT_INIT_X_SERVICE_HOST=x"})
	if err != nil {
		t.Fatal(err)
	}
	if c.User != "dev" || c.Selftest != "warn" || c.Grace != 3*time.Second || c.HostUID != "1234" {
		t.Errorf("got %+v", c)
	}
	if _, leaked := c.Environ["AGENT_INIT_X_SERVICE_HOST"]; leaked || c.Environ["PATH"] != "/bin" {
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
		"open, and set up": {args: []string{"--unsafe-no-firewall", "--phase", "setup"}},
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

// TestGiven: what the command line allows is as a file of the policy, one flag an entry, and a variable several; the
// flag wins over the variable.
func TestGiven(t *testing.T) {
	for name, tc := range map[string]struct {
		args, env []string
		want      string // of the files
		wrong     string // in the error
	}{
		"nothing":          {env: []string{"AGENT_INIT_ALLOW=", "AGENT_INIT_INBOUND= ,"}},
		"flags":            {args: []string{"--allow", "a.example GET,HEAD /x", "--inbound", "3000", "--allow", "@github"}, want: "--allow: a.example GET,HEAD /x | @github | \n--inbound.yaml: {\"inbound\":[\"3000\"]}\n"},
		"variables":        {env: []string{"AGENT_INIT_ALLOW=a.example,b.example:22\n*.c.example private, ", "AGENT_INIT_INBOUND=3000, 53/udp"}, want: "AGENT_INIT_ALLOW: a.example | b.example:22 | *.c.example private | \nAGENT_INIT_INBOUND.yaml: {\"inbound\":[\"3000\",\"53/udp\"]}\n"},
		"both":             {args: []string{"--allow", "a.example"}, env: []string{"AGENT_INIT_ALLOW=b.example"}, want: "--allow: a.example | \n"},
		"no entry":         {args: []string{"--allow", "https://a.example/x"}, wrong: "--allow:1"},
		"too much":         {env: []string{"AGENT_INIT_ALLOW=*"}, wrong: "AGENT_INIT_ALLOW:1"},
		"requests":         {env: []string{"AGENT_INIT_ALLOW=a.example GET,HEAD /v1,b\nb.example,c.example"}, want: "AGENT_INIT_ALLOW: a.example GET,HEAD /v1,b | b.example | c.example | \n"},
		"requests beside":  {env: []string{"AGENT_INIT_ALLOW=b.example,a.example GET /v1"}, wrong: "AGENT_INIT_ALLOW:1"},
		"a denial":         {env: []string{"AGENT_INIT_ALLOW=a.example,!b.example"}, wrong: "file of the policy"},
		"a comment":        {env: []string{"AGENT_INIT_ALLOW=a.example # why"}, wrong: "without a comment"},
		"no port":          {args: []string{"--inbound", "http"}, wrong: "--inbound:14: a port is one number"},
		"a flow of YAML":   {args: []string{"--inbound", "3000], user: [root"}, wrong: "a port is one number"},
		"more of JSON":     {args: []string{"--inbound", "3000\"], \"user\": [\"root"}, wrong: "a port is one number"},
		"a line in a port": {env: []string{"AGENT_INIT_INBOUND=3000\nuser: root"}, wrong: "a port is one number"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := parseConfig(t, tc.args, tc.env)
			var got strings.Builder
			for _, f := range c.Given {
				fmt.Fprintf(&got, "%s: %s\n", f.Name, strings.ReplaceAll(string(f.Data), "\n", " | "))
			}
			if f, ok := err.(*fault.Fault); got.String() != tc.want || tc.wrong != "" && (!ok || f.Code != fault.Usage || !strings.Contains(f.Error(), tc.wrong)) || tc.wrong == "" && err != nil {
				t.Errorf("got %q, %v", got.String(), err)
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
