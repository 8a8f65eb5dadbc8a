package top

import (
	"fmt"
	"strconv"
	"time"
)

// size is a number of bytes in five columns.
func size(n uint64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return strconv.FormatUint(n, 10)
	}
	f, unit := float64(n), -1
	for f >= 999.5 && unit < len(units)-1 {
		f /= 1000
		unit++
	}
	if f < 9.95 {
		return fmt.Sprintf("%.1f%c", f, units[unit])
	}
	return fmt.Sprintf("%.0f%c", f, units[unit])
}

// rate is how many bytes a second, "" if there are none.
func rate(perSecond float64) string {
	if perSecond < 1 {
		return ""
	}
	return size(uint64(perSecond)) + "/s"
}

// brief is a time in four columns.
func brief(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
