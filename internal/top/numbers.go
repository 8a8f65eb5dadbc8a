package top

import (
	"fmt"
	"time"

	"github.com/agent-init/agent-init/internal/text"
)

// size is a number of bytes in five columns.
func size(n uint64) string { return text.Figures(n, "") }

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
