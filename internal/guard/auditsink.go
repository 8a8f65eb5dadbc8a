package guard

import (
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
)

// auditSink sends events to the keeper, which owns the file. It never blocks:
// what does not fit is counted and said with the next event that does.
type auditSink struct {
	conn *net.UnixConn
	lost atomic.Uint64
}

func openAuditSink(f *os.File) (*auditSink, error) {
	conn, err := wire.OpenPair(f)
	return &auditSink{conn: conn}, err
}

func (s *auditSink) record(e audit.Event) {
	e.Suppressed += s.lost.Swap(0)
	if s.conn.SetWriteDeadline(time.Now().Add(auditPatience)) == nil {
		if _, err := s.conn.Write(audit.Pack(e)); err == nil {
			return
		}
	}
	s.lost.Add(e.Suppressed + 1)
}

const auditPatience = 5 * time.Millisecond
