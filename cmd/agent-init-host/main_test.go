package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/launch/cli"
)

// TestRun: what the program has of its own; the rest is the package cli's.
func TestRun(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no engine
	for words, want := range map[string]struct {
		code int
		says string
	}{
		"":                        {fault.Usage, "say what to do"},
		"help":                    {fault.OK, "agent-init -C NAME COMMAND"},
		"--help":                  {fault.OK, "agent-init launch --list"},
		"version":                 {fault.OK, "dev\n"},
		"status":                  {fault.Usage, "agent-init -C NAME status runs it in a container"},
		"launch":                  {fault.Usage, "say which agent"},
		"launch --help":           {fault.OK, "--model-from-host PORT"},
		"launch --no-such":        {fault.Usage, "see agent-init launch --help"},
		"launch claude":           {fault.Failure, "there is no container engine here"},
		"launch claude -- --help": {fault.Failure, "there is no container engine here"},
		"-C":                      {fault.Usage, "say which container, and which command"},
		"-C x status":             {fault.Failure, "there is no container engine here"},
	} {
		var out bytes.Buffer
		err := run(context.Background(), cli.Streams{In: os.Stdin, Out: &out, Err: &out}, strings.Fields(words))
		if code := fault.Report(&out, err); code != want.code || !strings.Contains(out.String(), want.says) {
			t.Errorf("agent-init %s: exit %d, want %d\n%s", words, code, want.code, out.String())
		}
	}
}
