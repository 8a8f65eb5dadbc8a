package top

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/pkg/control"
)

// Decide asks as allow, deny and grants --end do.
func Decide(ctx context.Context, a Act) (string, error) {
	r := control.Request{Target: a.Target, Number: a.Number, Save: a.Save, Seconds: int64(a.Life / time.Second)}
	if a.Life == 0 && !a.Save {
		r.Seconds = control.Start
	}
	switch a.Deed {
	case Allow:
		r.Verb = ask.Allow
	case Deny:
		r.Verb = ask.Deny
	default:
		r = control.Request{Verb: ask.End, Number: a.Number, Target: a.Target}
	}
	var g grant.Granted
	if err := ask.Call(ctx, ask.ControlSocket, r, &g); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d: %s", g.Grant.Number, strings.Join(g.Lines(), "; ")), nil
}
