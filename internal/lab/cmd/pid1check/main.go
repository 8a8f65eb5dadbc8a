// Command pid1check runs the checks of internal/lab/pid1check against agent-init
// and the inits that are installed, and prints which pass.
//
// Usage: pid1check [-write FILE] [-only NAME,…] [-v]
//
// With -write it puts the table into FILE (docs/supervision.md), between the
// lines that mark its place. It exits 1 if agent-init fails a check, never for
// the others. It needs root, and AGENT_INIT_BIN or a Go toolchain.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/pid1check"
)

func main() {
	pid1check.Role()
	os.Exit(run())
}

func run() (code int) {
	write := flag.String("write", "", "put the table into this `file`")
	only := flag.String("only", "", "run only these `checks`, separated by commas")
	verbose := flag.Bool("v", false, "say why a check failed")
	flag.Parse()
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "pid1check: PID namespaces need root")
		return 1
	}
	var b builder
	defer b.end(&code)
	subjects := append([]pid1check.Subject{pid1check.AgentInit(lab.Binary(&b))}, pid1check.Peers()...)
	checks := pid1check.Checks()
	if *only != "" {
		names := strings.Split(*only, ",")
		checks = slices.DeleteFunc(checks, func(c pid1check.Check) bool { return !slices.Contains(names, c.Name) })
	}
	r := measure(subjects, checks)
	fmt.Print(r.text(*verbose))
	if *write != "" {
		if err := r.insert(*write); err != nil {
			fmt.Fprintln(os.Stderr, "pid1check:", err)
			return 1
		}
	}
	if !r.good() {
		return 1
	}
	return 0
}

// builder is what lab.Binary takes for a test.
type builder struct{ cleanups []func() }

var errStop = errors.New("stopped")

func (b *builder) Helper()          {}
func (b *builder) Cleanup(f func()) { b.cleanups = append(b.cleanups, f) }
func (b *builder) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "pid1check: "+format+"\n", args...)
}
func (b *builder) Errorf(format string, args ...any) { b.Logf(format, args...) }
func (b *builder) Fatalf(format string, args ...any) {
	b.Logf(format, args...)
	panic(errStop)
}

func (b *builder) end(code *int) {
	if r := recover(); r != nil {
		if r != any(errStop) {
			panic(r)
		}
		*code = 1
	}
	for _, f := range slices.Backward(b.cleanups) {
		f()
	}
}
