package keeper

import (
	"os"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// How often the keeper looks for a process: twice what a guard of ours asks.
const (
	scanBurst = 200
	scanEvery = 10 * time.Millisecond
)

// openFinding gets what finding takes. It is not worth a start that fails: the log
// says less then.
func (k *keeper) openFinding() (err error) {
	if k.fw.Reduced() != "" { // the kernel can't look sockets up, and the guard does not ask
		k.diag, err = os.Open(os.DevNull)
		return err
	}
	k.scans = budget.Pace{Burst: scanBurst, Every: scanEvery}
	if k.scanner, err = sockowner.NewScanner(k.identity.UID, k.identity.GID); err != nil {
		k.log.Warn("the log will not name processes", "error", err)
	}
	if k.diag, err = sockowner.Open(); err == nil {
		return nil
	}
	k.log.Warn("the log will not name processes", "error", err)
	k.diag, err = os.Open(os.DevNull) // which answers nothing
	return err
}

// owner tells the guard which process of the agent's has a socket open.
func (k *keeper) owner(m wire.Message) wire.Message {
	reply := wire.Message{Op: wire.OpOwner, ID: m.ID, Err: true}
	if k.scanner == nil || !k.scans.Take(time.Now()) {
		return reply
	}
	if p, ok := k.scanner.Holder(m.Number); ok {
		reply.PID, reply.Text, reply.Err = int32(p.PID), p.Name, false
	}
	return reply
}
