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

// finding is who looks for processes of the agent's, for the log.
type finding struct {
	scanner *sockowner.Scanner // nil: processes can't be looked at
	scans   budget.Pace
}

// open gets what finding takes, and returns where the guard looks sockets up. It is not
// worth a start that fails: the log says less then.
func (f *finding) open(a *agent) (diag *os.File, err error) {
	if a.reduced { // the kernel can't look sockets up, and the guard does not ask
		return os.Open(os.DevNull)
	}
	f.scans = budget.Pace{Burst: scanBurst, Every: scanEvery}
	if f.scanner, err = sockowner.NewScanner(a.identity.UID, a.identity.GID); err != nil {
		a.log.Warn("the log will not name processes", "error", err)
	}
	if diag, err = sockowner.Open(); err == nil {
		return diag, nil
	}
	a.log.Warn("the log will not name processes", "error", err)
	return os.Open(os.DevNull) // which answers nothing
}

// owner tells the guard which process of the agent's has a socket open.
func (f *finding) owner(m, reply wire.Message) wire.Message {
	reply.Err = true
	if f.scanner != nil && f.scans.Take(time.Now()) {
		if p, ok := f.scanner.Holder(m.Number); ok {
			reply.PID, reply.Text, reply.Err = int32(p.PID), p.Name, false
		}
	}
	return reply
}
