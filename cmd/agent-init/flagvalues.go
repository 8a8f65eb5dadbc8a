package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/text"
)

// timeValue is a time that a flag takes: as Go writes it, and in days, which a person
// who thinks of grants has in mind.
type timeValue time.Duration

func timeFlag(fs *flag.FlagSet, name string, preset time.Duration, usage string) {
	s := timeValue(preset)
	fs.Var(&s, name, usage)
}

func (s *timeValue) String() string { return text.Trimmed(time.Duration(*s)) }

func (s *timeValue) Set(text string) error {
	d, err := parseTime(text)
	if err != nil {
		return err
	}
	*s = timeValue(d)
	return nil
}

var errNoTime = errors.New("give a time such as 90s, 10m, 2h or 3d")

const day = 24 * time.Hour

// parseTime reads 90s, 1h30m and 3d. A day here has 24 hours.
func parseTime(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, errNoTime
		}
		return time.Duration(n) * day, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errNoTime
	}
	return d, nil
}

// whole is a number that a flag takes.
type whole struct {
	value uint64
	most  uint64
}

func numberFlag(fs *flag.FlagSet, name string, preset, most uint64, usage string) {
	fs.Var(&whole{preset, most}, name, usage)
}

func (n *whole) String() string { return strconv.FormatUint(n.value, 10) }

func (n *whole) Set(text string) error {
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil || v > n.most {
		return fmt.Errorf("give a number up to %d", n.most)
	}
	n.value = v
	return nil
}
