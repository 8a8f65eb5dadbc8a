// Command bench holds agent-init to its budgets, in the lab. Each row of the table is one budget, has one verdict, and
// names beside it what other programs take for the same in the same run, in turns.
//
// Usage: bench [-only NAME,…] [-before BINARY | -write FILE]
//
// With -before it measures another binary of agent-init in the same turns. With -write it puts what it measured into
// docs/benchmarks.md, whose other rows stay. It exits 1 if a budget is broken, or could not be measured. It needs root,
// and dnsperf, dnsmasq, iptables, ipset, tmux and the proxies. It sends no packet out of the lab's namespaces.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

func main() {
	os.Exit(run())
}

func run() (code int) {
	write := flag.String("write", "", "put the figures into this `file` (docs/benchmarks.md)")
	only := flag.String("only", "", "measure only these `rows`, separated by commas")
	before := flag.String("before", "", "measure this `binary` as well, in turns")
	client := flag.String("client", "", "be the `agent` inside of a box (for bench itself)")
	rounds := flag.Int("n", 1, "how often, as a client")
	through := flag.String("through", "", "the `proxy` to go through, as a client")
	flag.Parse()
	if *client != "" {
		return runClient(*client, *through, *rounds)
	}
	rows := rows()
	if *only != "" {
		rows = slices.DeleteFunc(rows, func(r row) bool { return !slices.Contains(strings.Split(*only, ","), r.name) })
	}
	if len(rows) == 0 || *before != "" && *write != "" {
		flag.Usage()
		return 64
	}

	b := &bench{report: &report{}, before: *before}
	defer func() {
		if r := recover(); r != nil && r != any(errStop) {
			panic(r)
		}
		b.clean(0)
		if b.failed || b.report.broken() {
			code = 1
		}
	}()
	if os.Getuid() != 0 {
		b.Fatalf("network namespaces need root: sudo make bench")
	}
	b.binary = lab.Binary(b)
	b.lab = lab.New(b, lab.Options{})
	b.serveNames()
	b.serveGated()
	b.serveModel()
	b.report.heading("Budgets")
	for _, r := range rows {
		begun := time.Now()
		b.measure(r)
		b.Logf("%s: in %.0f s", r.name, time.Since(begun).Seconds())
	}
	fmt.Print(b.report.text() + "\n" + b.machine().text() + "\n")
	if *write != "" {
		if err := b.report.save(*write, b.machine()); err != nil {
			b.Fatalf("%v", err)
		}
	}
	return 0
}

// measure runs what a row is about, of agent-init and of its peers, in turns. What a turn needs is cleaned up behind it.
func (b *bench) measure(r row) {
	subjects := r.subjects(b)
	for range r.turns {
		for _, s := range subjects {
			up, own := len(b.cleanups), b.binary
			if s.name == "before" {
				b.binary = b.before
			}
			v := s.measure(b)
			s.found = append(s.found, v)
			if r.budget == 0 { // its table says of which
				b.report.groups[len(b.report.groups)-1].title += ", " + s.name
			} else {
				b.Logf("%s: %s %s", r.name, s.name, r.value(v))
			}
			b.binary = own
			b.clean(up)
		}
	}
	if r.budget > 0 {
		r.tell(b.report, subjects)
	}
}

// bench is the lab's idea of a test, and what the rows share.
type bench struct {
	lab    *lab.Lab
	binary string // of agent-init, that is measured
	before string // another one, or ""
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
