package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// workers is how many checks run at a time: most of them wait.
const workers = 4

// report holds the outcome of every check, for every subject and mode.
type report struct {
	subjects []Subject
	checks   []Check
	errs     map[key]error
	shaky    map[key]bool // failed once, and passed once
}

type key struct {
	subject, check string
	mode           Mode
}

func measure(subjects []Subject, checks []Check) *report {
	r := &report{subjects, checks, map[key]error{}, map[key]bool{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	jobs := make(chan func())
	for range workers {
		wg.Go(func() {
			for job := range jobs {
				job()
			}
		})
	}
	for _, c := range checks {
		for i, s := range subjects {
			for _, m := range c.Modes() {
				jobs <- func() {
					err := Run(s, m, c)
					// The others get a second try, agent-init has to pass at once.
					shaky := i > 0 && err != nil && Run(s, m, c) == nil
					mu.Lock()
					defer mu.Unlock()
					k := key{s.Name, c.Name, m}
					r.errs[k], r.shaky[k] = err, shaky
				}
			}
		}
	}
	close(jobs)
	wg.Wait()
	return r
}

// cell is "yes", "no", "sometimes" or "–", one word for each mode if they differ.
func (r *report) cell(s Subject, c Check) string {
	var words []string
	for _, m := range c.Modes() {
		word := "yes"
		switch err := r.errs[key{s.Name, c.Name, m}]; {
		case errors.Is(err, ErrNotOffered):
			word = "–"
		case r.shaky[key{s.Name, c.Name, m}]:
			word = "sometimes"
		case err != nil:
			word = "no"
		}
		words = append(words, word)
	}
	if len(words) == 2 && words[0] == words[1] {
		words = words[:1]
	}
	return strings.Join(words, " / ")
}

// passed counts runs: a check in each of its modes.
func (r *report) passed(s Subject) (passed, all int) {
	for _, c := range r.checks {
		for _, m := range c.Modes() {
			all++
			if r.errs[key{s.Name, c.Name, m}] == nil {
				passed++
			}
		}
	}
	return passed, all
}

// good says whether agent-init, the first subject, does what it should.
func (r *report) good() bool {
	for _, c := range r.checks {
		for _, m := range c.Modes() {
			if (r.errs[key{r.subjects[0].Name, c.Name, m}] == nil) != (c.Differs == "") {
				return false
			}
		}
	}
	return true
}

func (r *report) text(verbose bool) string {
	var w strings.Builder
	row := func(cells ...string) {
		fmt.Fprintf(&w, "%-22s", cells[0])
		for _, c := range cells[1:] {
			fmt.Fprintf(&w, " %-15s", c)
		}
		w.WriteString("\n")
	}
	cells := []string{""}
	for _, s := range r.subjects {
		cells = append(cells, s.Name)
	}
	row(cells...)
	for _, c := range r.checks {
		cells := []string{c.Name}
		for _, s := range r.subjects {
			cells = append(cells, r.cell(s, c))
		}
		row(cells...)
		for _, s := range r.subjects {
			for _, m := range c.Modes() {
				if err := r.errs[key{s.Name, c.Name, m}]; verbose && err != nil {
					fmt.Fprintf(&w, "    %s, %s: %v\n", s.Name, m, err)
				}
			}
		}
	}
	cells = []string{"passed"}
	for _, s := range r.subjects {
		passed, all := r.passed(s)
		cells = append(cells, fmt.Sprintf("%d/%d", passed, all))
	}
	row(cells...)
	return w.String()
}

func (r *report) markdown() string {
	var w strings.Builder
	w.WriteString("Compared: " + strings.Join(versions(r.subjects), ", ") + ".\n\n")
	head, rule := "| behaviour | test |", "|---|---|"
	for _, s := range r.subjects {
		head += " " + s.Name + " |"
		rule += "---|"
	}
	group := ""
	for _, c := range r.checks {
		if c.Group != group {
			group = c.Group
			fmt.Fprintf(&w, "\n### %s\n\n%s\n%s\n", group, head, rule)
		}
		fmt.Fprintf(&w, "| %s | `%s` |", c.Text, c.Name)
		for i, s := range r.subjects {
			cell := r.cell(s, c)
			if i == 0 && c.Differs != "" {
				cell += ", on purpose"
			}
			fmt.Fprintf(&w, " %s |", cell)
		}
		w.WriteString("\n")
	}
	w.WriteString("\n### In all\n\n" + strings.Replace(head, "| behaviour | test |", "| |", 1) + "\n" + strings.Replace(rule, "|---|---|", "|---|", 1) + "\n| passed |")
	for _, s := range r.subjects {
		passed, all := r.passed(s)
		fmt.Fprintf(&w, " %d of %d |", passed, all)
	}
	w.WriteString("\n\n### What differs on purpose\n\n")
	for _, c := range r.checks {
		if c.Differs != "" {
			fmt.Fprintf(&w, "- `%s`: %s.\n", c.Name, c.Differs)
		}
	}
	return w.String()
}

// versions asks Debian's package manager, since not all of them say.
func versions(subjects []Subject) []string {
	var list []string
	for _, s := range subjects[1:] {
		out, err := exec.Command("dpkg-query", "-W", "-f", "${Version}", s.Name).Output()
		if err != nil {
			out = nil
		}
		list = append(list, strings.TrimSpace(s.Name+" "+string(out)))
	}
	return list
}

const (
	tableBegin = "<!-- table: made by make supervision -->\n"
	tableEnd   = "<!-- end of the table -->\n"
)

// insert replaces what is between the marks in the file.
func (r *report) insert(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table", file)
	}
	return os.WriteFile(file, []byte(before+tableBegin+"\n"+r.markdown()+"\n"+tableEnd+after), 0o644)
}
