package ask

import (
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/control"
)

// ForVerdict is what is asked of the keeper when a person has said v to a request of the agent's. It has the target that
// the person has seen: one that is another's by now is refused.
func ForVerdict(v sessionop.Verdict, number uint32, target string) (r control.Request, ok bool) {
	r = control.Request{Version: 1, Verb: Allow, Number: number, Target: target}
	switch v {
	case sessionop.ForMinutes: // the keeper's own idea of a while
	case sessionop.ForStart:
		r.Seconds = control.Start
	case sessionop.ForGood:
		r.Save = true
	case sessionop.TurnedDown:
		r.Verb = End
	default:
		return control.Request{}, false
	}
	return r, number != 0 && target != ""
}
