package stage

import (
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
)

// Reports takes events for the keeper, which owns the log, over f. It never blocks: what does not fit is counted, and
// said with the next event that does.
func Reports(f *os.File) (audit.Recorder, error) {
	conn, err := wire.OpenPair(f)
	if err != nil {
		return nil, err
	}
	r := &reports{conn: conn}
	return r.record, nil
}

type reports struct {
	conn *net.UnixConn
	lost atomic.Uint64
}

func (r *reports) record(e audit.Event) {
	e.Suppressed += r.lost.Swap(0)
	if r.conn.SetWriteDeadline(time.Now().Add(reportPatience)) == nil {
		if _, err := r.conn.Write(audit.Pack(e)); err == nil {
			return
		}
	}
	r.lost.Add(e.Suppressed + 1)
}

const reportPatience = 5 * time.Millisecond
