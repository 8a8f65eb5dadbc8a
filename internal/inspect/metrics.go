package inspect

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/privdrop"
)

const (
	scrapersAtOnce = 16
	scrapeTime     = 5 * time.Second // of one request, and of a connection that asks nothing
	nobody         = 65534
)

// ServeMetrics answers GET /metrics at addr with what the keeper publishes, until ctx ends. It gives up all
// privileges before it calls ready and accepts a connection.
func ServeMetrics(ctx context.Context, addr string, ready func(net.Addr) error) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fault.New(fault.Usage, "name a port that nobody listens at, as in --listen :9464", "%w", err)
	}
	defer l.Close()
	if err := becomeNobody(); err != nil {
		return fault.New(fault.Privilege, "run it as another user: docker exec -u 65534", "give up privileges: %w", err)
	}
	if err := ready(l.Addr()); err != nil {
		return err
	}
	server := metricsServer(state.ReadMetrics)
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the metrics: %w", err)
	}
	return nil
}

// becomeNobody gives up root's identity and capabilities in all threads. Another user has none.
func becomeNobody() error {
	if os.Geteuid() != 0 {
		return nil
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(nobody, nobody, nobody), syscall.Setresuid(nobody, nobody, nobody)); err != nil {
		return err
	}
	return privdrop.Harden()
}

// metricsServer closes connections beyond scrapersAtOnce instead of keeping them waiting.
func metricsServer(read func() ([]byte, error)) *http.Server {
	var open atomic.Int32
	return &http.Server{
		Handler: showMetrics(read), ErrorLog: log.New(os.Stderr, "agent-init metrics: ", 0),
		ReadTimeout: scrapeTime, WriteTimeout: scrapeTime, IdleTimeout: scrapeTime, MaxHeaderBytes: 8 << 10,
		ConnState: func(c net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				if open.Add(1) > scrapersAtOnce {
					c.Close()
				}
			case http.StateClosed:
				open.Add(-1)
			}
		},
	}
}

func showMetrics(read func() ([]byte, error)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		data, err := read()
		if err != nil { // a scrape that fails is seen, and old figures are not
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(data)
	})
	return mux
}
