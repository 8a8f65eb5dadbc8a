package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/fault"
)

// TestDetect: all is printed that was asked for, or nothing, and a fault has its code and a remedy.
func TestDetect(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "wrong.conf"), []byte("[global]\nindex-url = a.example\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		pip  string // PIP_CONFIG_FILE
		args []string
		code int
	}{
		{"/dev/null", nil, fault.Usage},
		{"/dev/null", []string{"yarn"}, fault.Usage},
		{"/dev/null", []string{"npm", "--private"}, fault.Usage},
		{filepath.Join(home, "wrong.conf"), []string{"cargo", "pip"}, fault.Policy},
	} {
		var out bytes.Buffer
		e := environment{stdout: &out, env: []string{"HOME=" + home, "PIP_CONFIG_FILE=" + tc.pip, "npm_config_registry=https://a.example", "CARGO_REGISTRIES_A_INDEX=https://b.example"}}
		var f *fault.Fault
		if err := runDetect(t.Context(), e, home, detecting{}, tc.args); !errors.As(err, &f) || f.Code != tc.code || f.Remedy == "" || out.Len() > 0 {
			t.Errorf("%q: %v, want a fault of code %d\n%s", tc.args, err, tc.code, &out)
		}
	}
	var out bytes.Buffer
	e := environment{stdout: &out, env: []string{"HOME=" + home, "npm_config_registry=https://a.example", "CARGO_REGISTRIES_A_INDEX=https://b.example"}}
	if err := runDetect(t.Context(), e, home, detecting{private: true}, []string{"npm", "cargo"}); err != nil {
		t.Fatal(err)
	}
	npm, cargo, both := strings.Cut(out.String(), "# agent-init detect cargo\n")
	if !both || !strings.HasPrefix(npm, "# agent-init detect npm\na.example private  # registry, ") || !strings.Contains(cargo, "b.example private  # registry a, ") {
		t.Errorf("got\n%s", out.String())
	}
	out.Reset()
	if err := runDetect(t.Context(), e, home, detecting{routes: true}, []string{"npm"}); err != nil || out.String() != "broker:\n  npm: {to: \"https://a.example\"}  # registry, variable npm_config_registry\n" {
		t.Errorf("the route: %v\n%s", err, &out)
	}
	for _, args := range [][]string{{"apt"}, {"npm", "npm"}, {"npm", "yarn"}} {
		out.Reset()
		if err := runDetect(t.Context(), e, home, detecting{routes: true}, args); err == nil || out.Len() > 0 {
			t.Errorf("routes of %q: %v\n%s", args, err, &out)
		}
	}
}
