package main

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestKernelServe runs the command in a box and asks it from there.
func TestKernelServe(t *testing.T) {
	lab.Require(t)
	bin := filepath.Join(t.TempDir(), "fakellm")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := lab.New(t, lab.Options{}).NewBox(lab.BoxOptions{Binds: []lab.Bind{{Source: bin, Target: "/usr/local/bin/fakellm"}}})
	p := b.Start(lab.Cmd{Args: []string{"fakellm", "-ca", "/tmp", "-names", "api.anthropic.com,platform.claude.com", "-dns"}})
	if !p.WaitOutput("serving", 5*time.Second) {
		t.Fatalf("not ready: %s%s", p.Stdout(), p.Stderr())
	}
	self := b.Addr4().String()
	tests := []struct {
		args []string
		ok   bool
	}{
		{[]string{"http", "-ca", "/tmp/ca.pem", "-addr", self + ":443", "https://api.anthropic.com/api/hello"}, true},
		{[]string{"http", "-addr", self + ":443", "https://api.anthropic.com/api/hello"}, false}, // another CA than the lab's
		{[]string{"http", "-addr", self + ":80", "http://platform.claude.com/v1/models"}, true},
		{[]string{"dns", self + ":53", "Platform.claude.com", "A"}, true},
		{[]string{"dns", "-tcp", self + ":53", "api.anthropic.com", "A"}, true},
		{[]string{"dns", self + ":53", "api.anthropic.com", "AAAA"}, false},
		{[]string{"dns", self + ":53", "example.com", "A"}, false},
	}
	for _, tt := range tests {
		if got := b.Poke(lab.AgentUID, tt.args...); got.OK != tt.ok {
			t.Errorf("%v: want ok=%t: %s", tt.args, tt.ok, got)
		}
	}
}
