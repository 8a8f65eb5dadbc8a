// Command scorecard makes the attacks of the catalogue in containers of all
// kinds, and prints what arrived on the far side as a table.
//
// Without -image it attacks agent-init in each of its modes, over each packet
// filter, in the images of an engine and behind gateways, and two that show what
// the table looks like where something is open: a Debian without anything, and a
// script for iptables. With -image it attacks that one alone, with -gateway what
// is behind gateways.
//
// With -subjects it attacks nothing, and makes a page of the reports of others.
//
// Usage: scorecard [-subjects FILE JSON…] [-write FILE] [-json FILE] [-badge FILE] [-gateway] [-image REF [-subject FILE | -name NAME …]]
//
// With -json and -badge it writes the results for programs, and a picture of their sum.
//
// It exits 1 if an attack leaked where agent-init should have held it, or
// nothing leaked where nothing is held; with -image, if anything leaked.
// It needs root and, for containers, the engine of test/engine.sh by DOCKER_HOST;
// test/scorecard.sh makes both and the images.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/scorecard"
)

func main() { os.Exit(run()) }

func run() int {
	write := flag.String("write", "", "make this `file` from the results (docs/scorecard.md)")
	boxes := flag.Bool("boxes", true, "attack boxes of the lab, which need no engine")
	behind := flag.Bool("gateway", false, "attack from behind gateways alone, and leave the rest of the file as it is")
	own := imagesFlags()
	stranger := subjectFlags()
	results := resultFlags()
	page := flag.String("subjects", "", "make this `file` (docs/subjects.md) from the reports in JSON that are named as arguments")
	flag.Parse()

	if *page != "" {
		return madeFrom(*page, flag.Args())
	}
	c := &card{}
	if !c.lane(func() {
		if os.Getuid() != 0 {
			c.Fatalf("network namespaces need root: sudo make scorecard")
		}
	}) {
		return 1
	}
	if stranger.ref != "" {
		ok := c.lane(func() { c.foreign(stranger.subject(c), own.peer, results) })
		if !ok {
			return 1
		}
		return 0
	}
	if !c.all(*boxes, *behind, own) {
		fmt.Fprintf(os.Stderr, "\nscorecard FAILED: %s\n", strings.Join(c.faults, "\nscorecard FAILED: "))
		return 1
	}
	columns := slices.Concat(c.columns, c.gateways)
	fmt.Print(scorecard.Table(columns, true))
	if err := results.write(columns); err != nil {
		c.Logf("%v", err)
		return 1
	}
	if *write == "" {
		return 0
	}
	modes := 0
	if *boxes && !*behind {
		modes = len(scorecard.Modes())
	}
	text, err := document(c.columns[:modes], c.columns[modes:], c.gateways)
	if err == nil && *behind {
		text, err = updated(*write, text)
	}
	if err == nil {
		err = os.WriteFile(filepath.Clean(*write), []byte(text), 0o644)
	}
	if err != nil {
		c.Logf("%v", err)
		return 1
	}
	return 0
}

// all fills the columns, side by side: most of the time something is waited for.
// The containers of the engine share its one internet, and take turns.
func (c *card) all(boxes, behind bool, own *ownImages) bool {
	binary := ""
	if boxes && !c.lane(func() { binary = lab.Binary(c) }) {
		return false
	}
	var lanes []*card
	var jobs []func()
	lane := func(job func(*card)) {
		l := &card{}
		lanes, jobs = append(lanes, l), append(jobs, func() { job(l) })
	}
	if boxes && !behind {
		for _, mode := range scorecard.Modes() {
			lane(func(c *card) { c.boxes(binary, mode) })
		}
	}
	lane(func(c *card) { c.images(own, behind) })
	if boxes {
		lane(func(c *card) { c.routed(binary) })
	}
	ok := make([]bool, len(jobs))
	var wg sync.WaitGroup
	for i, job := range jobs {
		wg.Go(func() { ok[i] = lanes[i].lane(job) })
	}
	wg.Wait()
	for _, l := range lanes {
		c.columns = append(c.columns, l.columns...)
		c.gateways = append(c.gateways, l.gateways...)
		c.faults = append(c.faults, l.faults...)
	}
	return !slices.Contains(ok, false)
}

// lane does a job to its end, or to what is fatal to it, and cleans up.
func (c *card) lane(job func()) bool {
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(errStop) {
				panic(r)
			}
		}()
		job()
	}()
	c.clean()
	for _, f := range c.last {
		if err := f(); err != nil {
			c.Errorf("%v", err)
		}
	}
	c.last = nil
	return len(c.faults) == 0
}

// attack adds a setting's results to a column, and lets the setting go.
func (c *card) attack(column *scorecard.Column, place func() *scorecard.Setting) {
	defer c.clean()
	s := place()
	c.Logf("attacking: %s", s.Name)
	begun := time.Now()
	results, err := scorecard.Run(s, scorecard.Attacks())
	if err != nil {
		c.Fatalf("%s: %v", s.Name, err)
	}
	c.Logf("attacked: %s, in %.0f s", s.Name, time.Since(begun).Seconds())
	if why := s.Unreached(); why != "" {
		c.Logf("%s: %s", s.Name, why)
	}
	column.Works = s.Works && (column.Works || len(column.Results) == 0)
	column.Results = append(column.Results, results)
	for _, r := range results {
		if s.Open && len(r.Attack.Try) > 0 && r.Outcome == scorecard.Blocked {
			c.Logf("%s: %s leaves no trace here", s.Name, r.Attack.ID)
		}
	}
}

// card is the lab's idea of a test, and what was found so far.
type card struct {
	columns  []scorecard.Column
	gateways []scorecard.Column // behind one
	cleanups []func()
	last     []func() error // after all of them
	faults   []string
}

var errStop = errors.New("ended early")

func (c *card) Helper()          {}
func (c *card) Cleanup(f func()) { c.cleanups = append(c.cleanups, f) }
func (c *card) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "scorecard: "+format+"\n", args...)
}
func (c *card) Errorf(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
	c.Logf(format, args...)
}
func (c *card) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	panic(errStop)
}

// clean runs the cleanups, last in first out.
func (c *card) clean() {
	for len(c.cleanups) > 0 {
		last := len(c.cleanups) - 1
		f := c.cleanups[last]
		c.cleanups = c.cleanups[:last]
		f()
	}
}

var _ lab.TB = (*card)(nil)
