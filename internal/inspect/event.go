package inspect

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
)

const letOut = "let out"

// verdictColour is the terminal's: green, red, and yellow for what needs a look.
func verdictColour(verdict string) string {
	return map[string]string{string(audit.Allow): "32", string(audit.Deny): "31", string(audit.Fault): "31;1", letOut: "33"}[verdict]
}

// eventLine is an event of the audit log in one line for people.
func eventLine(e audit.Event, now time.Time, coloured bool) string {
	what := text.Clean(e.Name)
	if e.IP != "" {
		at := e.IP
		if e.Port != 0 {
			at = fmt.Sprintf("%s %d/%s", e.IP, e.Port, cmp.Or(e.Proto, "tcp"))
		}
		if what != "" {
			what += " "
		}
		what += text.Clean(at)
	}
	verdict := string(e.Verdict)
	if e.Enforce != "" {
		verdict = letOut // what enforce would not have done
	}
	begin, end := "", ""
	if code := verdictColour(verdict); coloured && code != "" {
		begin, end = "\x1b["+code+"m", "\x1b[0m"
	}
	line := fmt.Sprintf("%s  %s%-7s%s %-8s %-32s %s", text.Moment(e.Time, now), begin, text.Clean(verdict), end, text.Clean(string(e.Kind)), what, text.Clean(e.Reason))
	if e.Out > 0 || e.In > 0 {
		line += fmt.Sprintf(": %s out, %d in, %v", text.Counted(e.Out, "byte", "bytes"), e.In, time.Duration(e.Millis)*time.Millisecond)
	}
	if e.Rule != "" {
		line += " [" + text.Clean(e.Rule) + "]"
	}
	if who := processOf(e); who != "" {
		line += " by " + who
	}
	switch {
	case e.Kind == audit.Guard && strings.HasPrefix(e.Reason, audit.Unwritten):
		line += fmt.Sprintf(" (%d of them)", e.Suppressed)
	case e.Suppressed > 0:
		line += fmt.Sprintf(" (and %d before it)", e.Suppressed)
	}
	return line
}

// processOf is who caused an event, as far as it is known.
func processOf(e audit.Event) string {
	switch {
	case e.Asker == audit.ByGuard:
		return "the guard"
	case e.Asker == audit.BySelfTest:
		return "the self-test"
	case e.Asker == audit.ByOutside:
		return "somebody outside"
	case e.Comm != "":
		return fmt.Sprintf("%s (%d)", text.Clean(e.Comm), e.PID)
	case e.PID != 0 && e.UID != nil:
		return fmt.Sprintf("pid %d, uid %d", e.PID, *e.UID)
	case e.PID != 0:
		return fmt.Sprintf("pid %d", e.PID)
	case e.UID != nil:
		return fmt.Sprintf("uid %d", *e.UID)
	}
	return ""
}

// denied says whether something was refused, or would have been.
func denied(e audit.Event) bool { return e.Verdict == audit.Deny || e.Enforce == audit.Deny }
