package attack

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// scrape asks for the metrics from outside.
func (w *world) scrape(path string) string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), lab.Patience)
	defer cancel()
	conn, err := w.lab.Internet.Dial(ctx, "tcp", netip.AddrPortFrom(w.box.Addr4(), 9464).String(), netip.AddrPort{})
	if err != nil {
		w.Fatalf("Prometheus does not reach it: %v", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(lab.Patience))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path)
	data, err := io.ReadAll(conn)
	if err != nil {
		w.Fatalf("GET %s: %v", path, err)
	}
	return string(data)
}

// TestLabMetricsListen: what serves the metrics has no privilege, is asked from outside by inbound alone, and says no more than
// what the keeper has written. Old figures are not served.
func TestLabMetricsListen(t *testing.T) {
	w := confine(t, "ok.test\n", lab.BoxOptions{Files: []lab.File{settings("inbound: [9464]\n")}})
	server := w.box.ExecStart(lab.Cmd{Args: []string{"agent-init", "metrics", "--listen", ":9464"}})
	if !eventually(0, func() bool { return strings.Contains(server.Stderr(), "metrics at http://") }) {
		t.Fatalf("it does not serve: %s", server.Stderr())
	}
	if got := w.scrape("/metrics"); !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") || !strings.Contains(got, "\nagent_init_healthy 1\n") {
		t.Errorf("%s", got)
	}
	if got := w.scrape("/"); !strings.HasPrefix(got, "HTTP/1.1 404 ") {
		t.Errorf("%s", got)
	}
	if r := w.root("agent-init", "metrics"); r.Code != 0 || !strings.HasPrefix(r.Stdout, "# HELP agent_init_info ") || !strings.Contains(r.Stdout, "\nagent_init_healthy 1\n") {
		t.Errorf("%s", r)
	}
	if r := w.root("stat", "-c", "%u %a", "/run/agent-init/metrics.prom"); r.Stdout != "0 644\n" {
		t.Errorf("%s", r)
	}
	all := inmates(t, w.agent)
	i := slices.IndexFunc(all, func(p inmate) bool { return strings.Contains(p.args, "--listen") })
	if i < 0 || all[i].uid != 65534 || all[i].gid != 65534 {
		t.Fatalf("it runs as somebody else: %+v", all)
	}
	status := w.root("cat", fmt.Sprintf("/proc/%d/status", all[i].pid)).Stdout
	for _, set := range []string{"CapPrm", "CapEff", "CapInh", "CapAmb"} {
		if !strings.Contains(status, set+":\t0000000000000000\n") {
			t.Errorf("it holds %s: %s", set, status)
		}
	}
	// A file that is old is not served. A directory in the place of the next one keeps the keeper from writing it.
	if r := w.root("sh", "-c", "cd /run/agent-init; until rm -f metrics.prom.new && mkdir metrics.prom.new; do :; done; touch -d '1 hour ago' metrics.prom"); r.Code != 0 {
		t.Fatalf("%s", r)
	}
	if got := w.scrape("/metrics"); !strings.HasPrefix(got, "HTTP/1.1 503 ") || strings.Contains(got, "agent_init_healthy") {
		t.Errorf("%s", got)
	}
	if r := w.root("agent-init", "metrics"); r.Code != 1 || r.Stdout != "" || !strings.Contains(r.Stderr, "the keeper has not reported since") {
		t.Errorf("%s", r)
	}
	server.Signal(syscall.SIGTERM)
	server.Wait(0)
}
