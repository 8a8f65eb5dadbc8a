package main

import (
	"errors"
	"flag"
	"time"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/control"
)

// lasting is how long a grant is to last, as --for and --save say it.
type lasting struct {
	preset  string
	seconds int64 // as in a request
	given   bool
}

// startWord is a time that ends when agent-init does.
const startWord = "start"

func (l *lasting) flags(fs *flag.FlagSet, r *control.Request, usage string) {
	if err := l.Set(l.preset); err != nil {
		panic(err) // of our own words
	}
	l.given = false
	fs.Var(l, "for", usage)
	fs.BoolVar(&r.Save, "save", false, "for good: also keep it in "+state.SavedFile+", which each start reads")
	fs.StringVar(&r.Reason, "reason", "", "`TEXT` for the audit log, and for the file of --save")
}

func (l *lasting) String() string { return l.preset }

// Set reads start, 90s, 1h30m and 3d.
func (l *lasting) Set(s string) error {
	l.given = true
	t, err := text.ParseTime(s)
	switch {
	case s == startWord, err == nil && t == 0 && l.preset == startWord: // as it was written before there was a word for it
		l.seconds = control.Start
	case err != nil || t < time.Second:
		return errors.New("give a time such as 90s, 10m or 2h, or the word start")
	default:
		l.seconds = int64(t / time.Second)
	}
	return nil
}
