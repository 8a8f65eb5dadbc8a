package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// try is a line of agent.sh: what the agent tried, what it may expect where it is
// confined, and what became of it.
type try struct {
	what, took, said string
	may, worked      bool
}

// tries runs the agent in a box and collects what became of what it tried.
func (d *demo) tries(box *lab.Box, args ...string) (*lab.Process, []try) {
	p := box.Start(lab.Cmd{Args: args})
	if !p.WaitOutput("the agent waits", 10*time.Minute) {
		r := p.Wait(time.Second)
		d.Fatalf("the agent did not come to its end: exit %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	var all []try
	for line := range strings.Lines(p.Stdout()) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(f) == 5 {
			all = append(all, try{what: f[1], took: f[3], said: f[4], may: f[0] == "allowed", worked: f[2] == "worked"})
		}
	}
	if len(all) == 0 {
		d.Fatalf("the agent tried nothing: %s", p.Stdout())
	}
	return p, all
}

// possible fails unless everything worked. What nobody stops and what fails all the
// same shows nothing about who stops it.
func (d *demo) possible(without []try) {
	for _, t := range without {
		if !t.worked {
			d.Errorf("%q does not work without agent-init either: %s", t.what, t.said)
		}
	}
}

// judge prints what became of the confined agent's tries, and fails where that is
// not what the policy says, or not the same as was tried before.
func (d *demo) judge(without, confined []try) {
	if len(without) != len(confined) {
		d.Errorf("%d things were tried without agent-init, and %d with it", len(without), len(confined))
	}
	verdict := map[bool]string{true: "allowed", false: "refused"}
	for _, t := range confined {
		fmt.Println(t.row(verdict[t.worked]))
		if t.worked != t.may {
			d.Errorf("%q is %s, and should be %s", t.what, verdict[t.worked], verdict[t.may])
		}
	}
}

// row is a line of at most 78 columns. What curl says begins with its name and number.
func (t try) row(verdict string) string {
	said := t.said
	if rest, ok := strings.CutPrefix(said, "curl: "); ok {
		_, said, _ = strings.Cut(rest, " ")
	}
	row := []rune(fmt.Sprintf("  %-34s %-7s %4s ms  %s", t.what, verdict, t.took, said))
	if len(row) > 78 {
		row = append(row[:77], '…')
	}
	return string(row)
}
