package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/text"
)

// Unused is what suggest --unused prints.
type Unused struct {
	Version   int       `json:"version"`
	Dir       string    `json:"dir"` // of the policy's files
	Since     time.Time `json:"since,omitzero"`
	Begins    time.Time `json:"begins,omitzero"` // the log, if that is later: what was used before is not known
	Lines     []Entry   `json:"lines"`           // by file
	Traceless int       `json:"traceless"`       // entries of which nobody can say whether they were used
	More      int       `json:"more,omitempty"`  // entries that were not looked at

	now   time.Time
	saved map[string]uint32 // numbers of grants for good, by entry
}

// logGap is how long after a start its first line may be in the log.
const logGap = time.Minute

// FindUnused finds the entries of the policy in force that allow what nobody has used. What is granted for a time is none
// of them: it ends by itself.
func FindUnused(o Options) (*Unused, error) {
	r, err := Make(o)
	if err != nil {
		return nil, err
	}
	if r.Policy == nil || r.Now == nil || !r.Now.Live {
		return nil, fault.New(fault.Failure, "run it where agent-init runs; of a run that has ended, agent-init report tells",
			"agent-init does not run here, and nobody knows what is used")
	}
	return unusedIn(r), nil
}

func unusedIn(r *Report) *Unused {
	u := &Unused{now: r.Made, Version: 1, Dir: r.Policy.Dir, Since: r.Since, Lines: []Entry{}, More: r.Policy.More, saved: map[string]uint32{}}
	if r.First.Sub(r.Since) > logGap {
		u.Begins = r.First
	}
	for _, g := range r.Standing {
		if g.Saved && g.Kind == grant.Allow {
			u.saved[g.Target] = g.Number
		}
	}
	for _, e := range r.Policy.Entries {
		switch {
		case e.Deny || strings.HasPrefix(e.Source, grant.Prefix):
		case e.Unused():
			u.Lines = append(u.Lines, e)
		case e.Traceless && e.Used == 0 && e.Open == 0:
			u.Traceless++
		}
	}
	return u
}

// Write prints the lines as they stand in their files.
func (u *Unused) Write(out io.Writer, _ bool) error {
	w := &text.Screen{W: out}
	since := "as far as the log goes back"
	if !u.Since.IsZero() {
		since = "since " + text.Moment(u.Since, u.now)
	}
	what := fmt.Sprintf("%s, nobody has used these. Take out what is not needed.", since)
	if len(u.Lines) == 0 {
		what = since + ", each entry was used of which that can be told"
	}
	w.Line("# %s", strings.ToUpper(what[:1])+what[1:])
	if !u.Begins.IsZero() {
		w.Line("# The log begins %s: what was used before is not known.", text.Moment(u.Begins, u.now))
	}
	file := ""
	for _, e := range u.Lines {
		from, line, _ := strings.Cut(e.Source, ":")
		if from != file {
			file = from
			w.Line("\n# %s", text.Clean(u.place(file)))
		}
		where := "line " + line
		if n := u.saved[e.Rule]; n != 0 {
			where += fmt.Sprintf("; agent-init grants --end %d takes it out", n)
		}
		w.Line("%-40s # %s", e.Rule, where)
	}
	if u.Traceless > 0 {
		w.Line("\n# %s by address, without a line in the log: nobody can say whether anybody uses what they allow", text.Counted(u.Traceless, "entry passes", "entries pass"))
	}
	if u.More > 0 {
		w.Line("\n# and %d more entries, which were not looked at", u.More)
	}
	return w.Err
}

// place is where a file of the policy is; what the command line gives is in none.
func (u *Unused) place(file string) string {
	if strings.HasPrefix(file, "/") || strings.HasPrefix(file, "-") || strings.HasPrefix(file, fault.EnvPrefix) {
		return file
	}
	return u.Dir + "/" + file
}
