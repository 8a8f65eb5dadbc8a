// Command gotest is "go test -v" that also says how far it is: gotest ARGUMENT…
//
// Packages may run beside one another. One of them is printed as it goes, and each other one when that has ended, so that
// a test's words stand together. The file that AGENT_INIT_TEST_PROGRESS names has one line: how many packages have ended,
// and of each that runs, how many of how many tests have, and which are under way. test/run.sh shows it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Getenv("AGENT_INIT_TEST_PROGRESS")))
}

func run(args []string, out io.Writer, progress string) int {
	known, err := count(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		return 2
	}
	test := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	test.Stderr = os.Stderr
	events, err := test.StdoutPipe()
	if err == nil {
		err = test.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		return 2
	}
	r := &report{out: out, known: known}
	readErr := r.read(events, func() error {
		if progress == "" {
			return nil
		}
		return os.WriteFile(progress, []byte(r.String()+"\n"), 0o644)
	})
	if readErr != nil {
		fmt.Fprintln(os.Stderr, "gotest:", readErr)
		_ = test.Process.Kill()
	}
	var exit *exec.ExitError
	switch err := test.Wait(); {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil || readErr != nil:
		return 2
	}
	return 0
}

// valued are the flags of go test that may have their value in the next argument.
var valued = []string{"-run", "-skip", "-exec", "-p", "-parallel", "-timeout", "-count"}

// count reads from the sources how many tests the arguments choose in each package.
func count(args []string) (map[string]int, error) {
	chosen, skipped := regexp.MustCompile(""), regexp.MustCompile("^$")
	list := []string{"list", "-f", `{{.ImportPath}} {{.Dir}} {{join .TestGoFiles " "}} {{join .XTestGoFiles " "}}`}
	for i := 0; i < len(args); i++ {
		name, value, set := strings.Cut(args[i], "=")
		if !set && slices.Contains(valued, name) && i+1 < len(args) {
			i++
			value = args[i]
		}
		var err error
		switch first, _, _ := strings.Cut(value, "/"); {
		case name == "-run":
			chosen, err = regexp.Compile(first)
		case name == "-skip" && first == value: // else it is about subtests
			skipped, err = regexp.Compile(first)
		case !strings.HasPrefix(name, "-"):
			list = append(list, args[i])
		}
		if err != nil {
			return nil, err
		}
	}
	packages, err := exec.Command("go", list...).Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(packages)) {
		fields := strings.Fields(line)
		counts[fields[0]] = 0
		for _, file := range fields[2:] {
			source, err := os.ReadFile(filepath.Join(fields[1], file))
			if err != nil {
				return nil, err
			}
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(\w+ \*testing\.T\)`).FindAllSubmatch(source, -1) {
				if chosen.Match(m[1]) && !skipped.Match(m[1]) {
					counts[fields[0]]++
				}
			}
		}
	}
	return counts, nil
}

// event is one of test2json's.
type event struct{ Action, Package, Test, Output string }

// report is what has happened so far.
type report struct {
	out    io.Writer
	known  map[string]int // of each package, how many tests there are
	began  []*running     // the first one is printed as it goes
	ended  int
	passed int
	failed []string
}

// running is a package that is under way, or that waits to be printed.
type running struct {
	name   string
	words  strings.Builder // not printed yet
	whose  string          // the test of the last words
	midway bool            // they are no whole line
	over   bool
	of     int
	done   int
	active []string
}

// read takes events until there are no more, and calls changed after those that String tells of.
func (r *report) read(events io.Reader, changed func() error) error {
	for d := json.NewDecoder(events); ; {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read what go test says: %w", err)
		}
		if e.Package == "" { // a compiler's words
			if _, err := io.WriteString(r.out, e.Output); err != nil {
				return err
			}
			continue
		}
		r.take(e)
		if err := r.print(); err != nil {
			return err
		}
		if e.Action != "output" {
			if err := changed(); err != nil {
				return err
			}
		}
	}
}

// narrowed is what a package says in which fewer tests run than there are.
var narrowed = regexp.MustCompile(`^(\d+) tests run here\n$`)

func (r *report) take(e event) {
	i := slices.IndexFunc(r.began, func(p *running) bool { return p.name == e.Package })
	if i < 0 {
		i = len(r.began)
		r.began = append(r.began, &running{name: e.Package, of: r.known[e.Package]})
	}
	p := r.began[i]
	p.say(e)
	if m := narrowed.FindStringSubmatch(e.Output); m != nil {
		_, _ = fmt.Sscan(m[1], &p.of)
	}
	top := e.Test != "" && !strings.Contains(e.Test, "/")
	switch e.Action {
	case "run", "cont":
		if top {
			p.active = append(p.active, e.Test)
		}
	case "pause":
		p.active = slices.DeleteFunc(p.active, func(t string) bool { return t == e.Test })
	case "pass", "fail", "skip":
		if e.Test == "" {
			p.over = true
			r.ended++
			break
		}
		if e.Action == "fail" {
			r.failed = append(r.failed, e.Test)
		}
		if top {
			p.active = slices.DeleteFunc(p.active, func(t string) bool { return t == e.Test })
			p.done++
		}
		if top && e.Action == "pass" {
			r.passed++
		}
	}
}

// say takes words, and names their test where the last ones were another's: of tests that run at the same time, go test
// -json says it in the event alone (cmd/internal/test2json).
func (p *running) say(e event) {
	if e.Action != "output" {
		return
	}
	if e.Test != "" && e.Test != p.whose && !p.midway && !titled.MatchString(e.Output) {
		fmt.Fprintf(&p.words, "=== NAME  %s\n", e.Test)
	}
	if !p.midway {
		p.whose = e.Test
	}
	p.words.WriteString(e.Output)
	p.midway = !strings.HasSuffix(e.Output, "\n")
}

// titled is a line that names its test.
var titled = regexp.MustCompile(`^( *--- |=== )`)

// print says what the first package has said since, and all of those behind it that are over.
func (r *report) print() error {
	for len(r.began) > 0 {
		p := r.began[0]
		if _, err := io.WriteString(r.out, p.words.String()); err != nil {
			return err
		}
		p.words.Reset()
		if !p.over {
			return nil
		}
		r.began = r.began[1:]
	}
	return nil
}

func (r *report) String() string {
	s := fmt.Sprintf("%d tests passed, %d of %d packages ended", r.passed, r.ended, len(r.known))
	if len(r.failed) > 0 {
		s += ", FAILED: " + strings.Join(r.failed, " ")
	}
	for _, p := range r.began {
		if p.over {
			continue
		}
		s += fmt.Sprintf(", %s %d of %d", filepath.Base(p.name), p.done, p.of)
		if len(p.active) > 0 {
			s += " (" + strings.Join(p.active, " ") + ")"
		}
	}
	return s
}
