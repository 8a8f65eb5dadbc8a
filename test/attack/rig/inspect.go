package rig

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

const GitKey = "ghp_canary0123456789abcdefghijklmnopqrstuv"

// LookedInto confines a box whose image trusts the lab's authority.
func LookedInto(t *testing.T, list string, opts lab.BoxOptions) *World {
	t.Helper()
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	if mode() == "sidecar" { // what it tells is in a volume of both containers
		told := t.TempDir()
		Must(t, os.Chmod(told, 0o755))
		opts.Binds = append(opts.Binds, lab.Bind{Source: told, Target: "/told", Writable: true})
		opts.Env = append(opts.Env, "AGENT_INIT_ENV_FILE=/told/broker.env")
	}
	l.DNS.SetAddrs("api.test", "45.30.60.1", "2a0f:30::60")
	l.DNS.SetAddrs("api.github.com", "45.30.60.2")
	opts.Files = append(opts.Files, lab.File{Path: Bundle, Data: l.CA.PEM})
	return ConfineIn(t, l, list, opts)
}

// Reads is what a script begins with to have what agent-init tells.
func (w *World) Reads() string {
	return map[string]string{"up": ". /run/agent-init/broker.env\n", "sidecar": ". /told/broker.env\n"}[w.Mode]
}

// Trust is the file that programs trust.
func Trust() string {
	if mode() == "sidecar" {
		return "/told/trust.pem"
	}
	return "/run/agent-init/trust.pem"
}

// EachArea reads what a process may write.
func EachArea(t *testing.T, p Inmate, do func([]byte)) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", p.Host)
	maps, err := os.ReadFile(dir + "maps")
	Must(t, err)
	mem, err := os.Open(dir + "mem")
	Must(t, err)
	defer mem.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || !strings.HasPrefix(mode, "rw") || to-from > 64<<20 {
			continue // the rest of what the runtime reserves has never been used
		}
		area := make([]byte, to-from)
		n, err := mem.ReadAt(area, from)
		if err == nil || err == io.EOF || n > 0 { // a part of it may be gone
			do(area[:n])
		}
	}
}

// Get asks api.test, as a program that trusts what it is told to.
func (b *Brokered) Get(path string, flags ...string) lab.Poke {
	b.Helper()
	args := append([]string{"http", "-timeout", "60s", "-ca", Trust()}, flags...)
	return b.Poke(append(args, "https://api.test"+path)...)
}

func StatusOf(p lab.Poke) string { return fmt.Sprint(p.Detail["status"]) }
