package text

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Ago is how long something is past.
func Ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return Shortly(time.Since(t).Round(time.Second)) + " ago"
}

const day = 24 * time.Hour

// Shortly is a time as people read it, in two units at most: 10m, 1h30m, 2d3h. What is below a minute has its tenths.
func Shortly(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Shortly(-d)
	case d == 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second && d%time.Second != 0:
		return Trimmed(d.Round(100 * time.Millisecond))
	case d < time.Hour:
		return Trimmed(d.Round(time.Second))
	case d < 2*day:
		return Trimmed(d.Round(time.Minute))
	}
	d = d.Round(time.Hour)
	if hours := d % day / time.Hour; hours > 0 {
		return fmt.Sprintf("%dd%dh", d/day, hours)
	}
	return fmt.Sprintf("%dd", d/day)
}

// Days is a time as ParseTime reads it: in days, if it is a number of them.
func Days(d time.Duration) string {
	if d > 0 && d%day == 0 {
		return strconv.Itoa(int(d/day)) + "d"
	}
	return Shortly(d)
}

// Trimmed is a time, whole, without the zeros at its end.
func Trimmed(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// ParseTime reads a time that people write: 90s, 1h30m, and 3d. A day has 24 hours.
func ParseTime(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * day, err
	}
	d, err := time.ParseDuration(s)
	if err == nil && d < 0 {
		err = errors.New("it is negative")
	}
	return d, err
}

// dates are how people write a moment, RFC 3339 aside. Where the zone is not said, it is the reader's.
var dates = []string{time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly}

// ParseMoment reads a moment that people write: a date, with a time or without; a time of today; or RFC 3339.
func ParseMoment(s string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	for _, form := range dates {
		if t, err := time.ParseInLocation(form, s, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, form := range []string{time.TimeOnly, "15:04"} {
		if t, err := time.Parse(form, s); err == nil {
			return time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location()), nil
		}
	}
	return time.Time{}, errors.New("it is no date and no time")
}

// Moment is a time as commands show it: the hour of today, with the date where the day or the year is another.
func Moment(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	switch {
	case t.Year() != now.Year():
		return t.Format(time.DateTime)
	case t.YearDay() != now.YearDay():
		return t.Format("Jan _2 15:04:05")
	}
	return t.Format(time.TimeOnly)
}
