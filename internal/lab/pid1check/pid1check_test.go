package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

func TestMain(m *testing.M) {
	Role()
	os.Exit(m.Run())
}

// TestKernelConformance runs every check against agent-init. Where it differs
// on purpose it has to differ: else what the documentation says is out of date.
func TestKernelConformance(t *testing.T) {
	lab.Require(t)
	subject := AgentInit(lab.Binary(t))
	for _, c := range Checks() {
		for _, m := range c.Modes() {
			t.Run(c.Name+"/"+strings.ReplaceAll(string(m), " ", "-"), func(t *testing.T) {
				t.Parallel()
				err := Run(subject, m, c)
				switch {
				case c.Differs == "" && err != nil:
					t.Errorf("%s: %v", c.Text, err)
				case c.Differs != "" && err == nil:
					t.Errorf("it does: %s", c.Text)
				case c.Differs != "" && errors.Is(err, ErrNotOffered):
					t.Error(err)
				}
			})
		}
	}
}

// TestKernelConfined runs those checks against the confined agent that the
// firewall or the guard could have a part in: the guard is another child, and
// HUP is not the agent's.
func TestKernelConfined(t *testing.T) {
	lab.Require(t)
	subject := Confined(lab.Binary(t))
	for _, c := range Checks() {
		switch c.Name {
		case "exit-code", "no-descriptors", "realtime", "storm", "orphans-signalled", "burst-code", "grace", "rest-asked", "cleans-up",
			"hang-up", "ctrl-c-once", "given-back", "stops-itself", "job-control", "shell-above":
		default:
			continue
		}
		for _, m := range c.Modes() {
			t.Run(c.Name+"/"+strings.ReplaceAll(string(m), " ", "-"), func(t *testing.T) {
				t.Parallel()
				if err := Run(subject, m, c); err != nil {
					t.Errorf("%s: %v", c.Text, err)
				}
			})
		}
	}
}
