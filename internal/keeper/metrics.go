package keeper

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/agent-init/agent-init/pkg/control"
)

// metricsTime is how long a reader may take.
const metricsTime = 5 * time.Second

// serveMetrics answers whatever is asked, and reads no more of it than where it
// ends: the socket is root's alone.
func (b *base) serveMetrics(l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			if p, err := control.PeerOf(conn); err != nil || p.UID != uint32(os.Geteuid()) { // root, but for tests
				return
			}
			if conn.SetDeadline(time.Now().Add(metricsTime)) != nil {
				return
			}
			r := bufio.NewReader(io.LimitReader(conn, 16<<10))
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if strings.TrimSpace(line) == "" {
					break
				}
			}
			s := b.status()
			var body strings.Builder
			if s.WriteMetrics(&body, b.config.Version, time.Now()) == nil {
				fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", body.Len(), body.String())
			}
		}()
	}
}
