package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"time"

	"github.com/agent-init/agent-init/internal/text"
)

// policyDir is a flag of commands that read the policy.
func policyDir(fs *flag.FlagSet, to *string, usage string) {
	fs.StringVar(to, "config", "/etc/agent-init", usage)
}

// duration is a time that a flag takes: as Go writes it, and in days, which a person
// who thinks of grants has in mind.
type duration time.Duration

func timeFlag(fs *flag.FlagSet, to *time.Duration, name string, preset time.Duration, usage string) {
	*to = preset
	fs.Var((*duration)(to), name, usage)
}

func (d *duration) String() string { return text.Trimmed(time.Duration(*d)) }

// Set reads 90s, 1h30m and 3d.
func (d *duration) Set(s string) error {
	t, err := text.ParseTime(s)
	if err != nil {
		return errors.New("give a time such as 90s, 10m, 2h or 3d")
	}
	*d = duration(t)
	return nil
}

// number is one that a flag takes: from 1 to most. What was not given is as it was.
type number struct {
	to   *int64
	most int64
}

func numberFlag(fs *flag.FlagSet, to *int64, name string, preset, most int64, usage string) {
	*to = preset
	fs.Var(number{to, most}, name, usage)
}

func (n number) String() string { return strconv.FormatInt(*n.to, 10) }

func (n number) Set(text string) error {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 1 || v > n.most {
		return fmt.Errorf("give a number from 1 to %d", n.most)
	}
	*n.to = v
	return nil
}
