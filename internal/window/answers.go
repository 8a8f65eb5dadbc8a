package window

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
)

// serveAnswers takes from the client on the container's terminal what the person says to requests of the agent's, one
// after the other, until the client ends. It can say no more than that: which request, with the target that was seen,
// and one of four verdicts. What is nothing of that ends it.
func (k Host) serveAnswers(ch *wire.Channel, who control.Peer) {
	defer ch.Close()
	for {
		m, file, err := ch.Receive()
		if file != nil {
			file.Close() // it has none to give
		}
		if err != nil || m.Op != sessionop.Answer {
			return
		}
		k.Record(audit.Event{Kind: audit.Session, Verdict: audit.Info, UID: &who.UID, PID: who.PID, Reason: fmt.Sprintf("answered request %d at the container's terminal", m.ID)})
		reply := ask.Refuse(fault.Usage, "see agent-init grants", "this is no answer to a request")
		if r, ok := ask.ForVerdict(sessionop.Verdict(m.Flag), m.ID, m.Text); ok && r.Check() == nil {
			reply = k.Decide(context.Background(), who, r)
		}
		data := briefly(reply)
		if err := ch.Send(wire.Message{Op: sessionop.Answer, ID: m.ID, Text: data}, nil); err != nil {
			k.Log.Debug("answering the client on the container's terminal", "error", err)
			return
		}
	}
}

// briefly is a reply as JSON that fits into a message. What was done is in the list, also if it is too long to be told.
func briefly(reply control.Reply) string {
	data, err := json.Marshal(reply)
	if err == nil && len(data) <= sessionop.MaxText {
		return string(data)
	}
	if reply.OK {
		return `{"ok":true}`
	}
	return `{"ok":false,"error":"it was not done; why is too long to be told here","remedy":"see agent-init status and agent-init log"}`
}
