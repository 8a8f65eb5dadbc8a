// Command bench measures agent-init in the lab: how long a start takes, how fast
// names are answered, what the name gate costs, how much memory is held, and whether ten thousand orphans
// are reaped, beside what other inits cost. What can be compared is compared in the same run, and given as a
// ratio, since absolute times depend on the machine.
//
// Usage: bench [-write FILE] [-only start,backends,dns,gate,gateway,proxies,inspect,revoke,broker,memory,supervision,orphans,session,scale]
//
// It prints a table, and with -write makes docs/benchmarks.md from the same
// figures; with -only it replaces their sections there. It exits 1 if something
// could not be measured or a result was wrong (not if a goal of speed was
// missed: that the table says). It needs root, and for some sections dnsperf,
// dnsmasq, iptables, ipset, tmux and the proxies. It sends no packet out of the
// lab's namespaces.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

func main() {
	os.Exit(run())
}

// section is one group of figures.
type section struct {
	name    string
	measure func(*bench)
}

// is says whether it is meant by a name: "scale" means all that begin so.
func (s section) is(name string) bool { return s.name == name || strings.HasPrefix(s.name, name+"-") }

func sections() []section {
	return append([]section{
		{"start", measureStart}, {"backends", measureBackends}, {"dns", measureDNS}, {"gate", measureGate}, {"gateway", measureBehind}, {"proxies", measureProxies},
		{"inspect", measureInspect},
		{"revoke", measureRevoke},
		{"broker", measureBroker},
		{"memory", measureMemory}, {"supervision", measureSupervision}, {"orphans", measureOrphans}, {"session", measureSession},
	}, scales()...)
}

func run() (code int) {
	write := flag.String("write", "", "make this `file` from the figures (docs/benchmarks.md)")
	only := flag.String("only", "", "measure only these `sections`, separated by commas")
	client := flag.String("client", "", "be the `agent` inside of a box (for bench itself)")
	rounds := flag.Int("n", 1, "how often, as a client")
	through := flag.String("through", "", "the `proxy` to go through, as a client")
	flag.Parse()
	if *client != "" {
		return runClient(*client, *through, *rounds)
	}

	b := &bench{report: &report{began: time.Now()}}
	defer func() {
		if r := recover(); r != nil && r != any(errStop) {
			panic(r)
		}
		b.clean(0)
		if b.failed {
			code = 1
		}
	}()
	if os.Getuid() != 0 {
		b.Fatalf("network namespaces need root: sudo make bench")
	}
	b.binary = lab.Binary(b)
	dir, err := os.MkdirTemp("", "agent-init-bench-")
	if err != nil {
		b.Fatalf("%v", err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	b.lab = lab.New(b, lab.Options{})
	b.serveNames()

	for _, s := range sections() {
		if *only != "" && !slices.ContainsFunc(strings.Split(*only, ","), s.is) {
			continue
		}
		begun := time.Now()
		s.measure(b)
		b.Logf("measured: %s, in %.0f s", s.name, time.Since(begun).Seconds())
	}
	b.report.describe(b)
	fmt.Print(b.report.text())
	if *write != "" && !b.failed {
		if err := b.report.save(filepath.Clean(*write), *only != ""); err != nil {
			b.Fatalf("%v", err)
		}
	}
	return 0
}

// bench is the lab's idea of a test, and what the sections share.
type bench struct {
	lab    *lab.Lab
	binary string
	report *report

	cleanups []func()
	failed   bool
}

var errStop = errors.New("measuring ended early")

func (b *bench) Helper()          {}
func (b *bench) Cleanup(f func()) { b.cleanups = append(b.cleanups, f) }
func (b *bench) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
func (b *bench) Errorf(format string, args ...any) {
	b.failed = true
	b.Logf(format, args...)
}
func (b *bench) Fatalf(format string, args ...any) {
	b.Errorf(format, args...)
	panic(errStop)
}

// clean runs the cleanups down to the first n, last in first out.
func (b *bench) clean(n int) {
	for len(b.cleanups) > n {
		last := len(b.cleanups) - 1
		f := b.cleanups[last]
		b.cleanups = b.cleanups[:last]
		f()
	}
}
