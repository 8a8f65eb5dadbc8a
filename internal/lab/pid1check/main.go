package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/lab"
)

func main() {
	Role()
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
	subjects := append([]Subject{AgentInit(lab.Binary(&b))}, Peers()...)
	checks := Checks()
	if *only != "" {
		names := strings.Split(*only, ",")
		checks = slices.DeleteFunc(checks, func(c Check) bool { return !slices.Contains(names, c.Name) })
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
