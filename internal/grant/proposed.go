package grant

import (
	"fmt"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/text"
)

// Proposed answers a request; to who waited for it, with what became of it.
type Proposed struct {
	Version int       `json:"version"`
	Number  uint32    `json:"number,omitempty"` // 0: there is no need for one
	Target  string    `json:"target"`
	Allowed string    `json:"allowed,omitempty"` // the rule that allows it already, or by now
	Outcome Outcome   `json:"outcome,omitempty"` // "": nobody waited for it
	Decided *Decision `json:"decided,omitempty"` // nil: by nobody, or not about this request
	Expires time.Time `json:"expires,omitzero"`  // of what was granted; zero: it does not, or was not
}

// Says is what became of the request, or how it goes on.
func (p Proposed) Says(now time.Time) string {
	target := text.Clean(p.Target)
	switch {
	case p.Number == 0:
		return fmt.Sprintf("%s is allowed already, by %s", target, p.Allowed)
	case p.Outcome == "":
		return fmt.Sprintf("request %d: %s\na person can grant it with: agent-init allow --request %[1]d", p.Number, target)
	case p.Allowed != "":
		return fmt.Sprintf("request %d: %s is allowed now, by %s", p.Number, target, p.Allowed)
	case p.Outcome == StillWaits:
		return fmt.Sprintf("request %d: %s: nobody has decided yet; it goes on waiting", p.Number, target)
	}
	words := fmt.Sprintf("request %d: %s was %s", p.Number, target, p.Outcome)
	if !p.Expires.IsZero() {
		words += " for " + text.Shortly(max(0, p.Expires.Sub(now)))
	}
	if p.Decided != nil && p.Decided.Reason != "" {
		words += fmt.Sprintf(": %q", text.Clean(p.Decided.Reason))
	}
	return words
}

// Code is the exit code of who waited.
func (p Proposed) Code() int {
	return map[Outcome]int{
		WasTurnedDown: fault.TurnedDown, WasDenied: fault.Denied, WasForgotten: fault.Forgotten, StillWaits: fault.TimedOut,
	}[p.Outcome]
}
