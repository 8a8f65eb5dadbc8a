package keeper

import (
	"errors"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
)

// requested books a proposal of the guard's, and answers it.
func (k *keeper) requested(m wire.Message) wire.Message {
	reply := wire.Message{Op: wire.OpRequest, ID: m.ID}
	var err error
	if reply.Number, err = k.addRequest(m); err != nil {
		reply.Err, reply.Text = true, wire.PlainText(err.Error())
	}
	return reply
}

// addRequest books what the agent proposes. It opens nothing.
func (k *keeper) addRequest(m wire.Message) (uint32, error) {
	if err := wire.CheckRequest(m); err != nil {
		return 0, err
	}
	if !k.budgets.requests.Take(time.Now()) {
		return 0, errors.New("too many requests: wait a moment")
	}
	k.reloading.Lock()
	defer k.reloading.Unlock()
	k.mu.Lock()
	g, isNew, err := k.grants.Request(grant.Asker{Target: m.Name, Reason: m.Text, UID: m.UID, PID: int(m.PID)}, time.Now())
	k.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if isNew {
		k.log.Warn("the agent asks for a grant", "target", g.Target, "number", g.Number)
		k.record(g.Event(audit.Info, "requested by the agent", &control.Peer{UID: m.UID, PID: int(m.PID)}))
	}
	k.publishGrants()
	k.publish()
	return g.Number, nil
}
