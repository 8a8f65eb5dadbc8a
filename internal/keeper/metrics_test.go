package keeper

import (
	"context"
	"io"
	"net"
	nethttp "net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/control"
)

// TestMetricsSocket: what speaks HTTP over a unix socket gets the same.
func TestMetricsSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.sock")
	l, err := control.Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	k := &base{publisher: &publisher{state: state.State{Guard: state.Guard{Stats: wire.Stats{Denied: 10}}}}}
	go k.serveMetrics(l)
	client := nethttp.Client{Transport: &nethttp.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	for range 2 {
		r, err := client.Get("http://agent-init/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != 200 || !strings.Contains(string(body), "agent_init_dns_queries_total{decision=\"deny\"} 10\n") {
			t.Errorf("%v, %s\n%s", err, r.Status, body)
		}
	}
}
