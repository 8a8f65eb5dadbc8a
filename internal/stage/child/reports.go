package child

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
)

// Reports takes events for the keeper, which owns the log, over f. It waits for a moment at most: what does not fit is
// counted, and said with the next event that does.
func Reports(f *os.File) (audit.Recorder, error) {
	conn, err := wire.OpenPair(f)
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	r := &reports{conn: conn, raw: raw}
	return r.record, nil
}

type reports struct {
	conn *net.UnixConn
	raw  syscall.RawConn // of conn
	turn sync.Mutex      // to wait for room: who waits extends the time of all
	lost atomic.Uint64
}

func (r *reports) record(e audit.Event) {
	e.Suppressed += r.lost.Swap(0)
	if packed := audit.Pack(e); !r.fits(packed) && !r.waits(packed) {
		r.lost.Add(e.Suppressed + 1)
	}
}

// fits sends what there is room for. A limit of time would wake up a thread, for each event.
func (r *reports) fits(packed []byte) bool {
	err := error(unix.EBADF)
	r.raw.Control(func(fd uintptr) { _, err = unix.Write(int(fd), packed) })
	return err == nil
}

func (r *reports) waits(packed []byte) bool {
	if !r.turn.TryLock() {
		return false
	}
	defer r.turn.Unlock()
	if r.conn.SetWriteDeadline(time.Now().Add(reportPatience)) != nil {
		return false
	}
	_, err := r.conn.Write(packed)
	return err == nil
}

const reportPatience = 5 * time.Millisecond
