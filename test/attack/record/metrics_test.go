package record

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
	"github.com/agent-init/agent-init/test/attack/rig"
)

// scrape asks for the metrics from outside.
func scrape(w *rig.World, path string) string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), lab.Patience)
	defer cancel()
	conn, err := w.Lab.Internet.Dial(ctx, "tcp", netip.AddrPortFrom(w.Box.Addr4(), 9464).String(), netip.AddrPort{})
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

// TestMetricsListen: what serves the metrics has no privilege, is asked from outside by inbound alone, and says no more than
// what the keeper has written. Old figures are not served.
func TestMetricsListen(t *testing.T) {
	w := rig.Confine(t, "ok.test\n", lab.BoxOptions{Files: []lab.File{rig.Settings("inbound: [9464]\n")}})
	server := w.Box.ExecStart(lab.Cmd{Args: []string{"agent-init", "metrics", "--listen", ":9464"}})
	if !rig.Eventually(0, func() bool { return strings.Contains(server.Stderr(), "metrics at http://") }) {
		t.Fatalf("it does not serve: %s", server.Stderr())
	}
	if got := scrape(w, "/metrics"); !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") || !strings.Contains(got, "\nagent_init_healthy 1\n") {
		t.Errorf("%s", got)
	}
	if got := scrape(w, "/"); !strings.HasPrefix(got, "HTTP/1.1 404 ") {
		t.Errorf("%s", got)
	}
	if r := w.Root("agent-init", "metrics"); r.Code != 0 || !strings.HasPrefix(r.Stdout, "# HELP agent_init_info ") || !strings.Contains(r.Stdout, "\nagent_init_healthy 1\n") {
		t.Errorf("%s", r)
	}
	if r := w.Root("stat", "-c", "%u %a", "/run/agent-init/metrics.prom"); r.Stdout != "0 644\n" {
		t.Errorf("%s", r)
	}
	all := rig.Inmates(t, w.Agent)
	i := slices.IndexFunc(all, func(p rig.Inmate) bool { return strings.Contains(p.Args, "--listen") })
	if i < 0 || all[i].Uid != 65534 || all[i].Gid != 65534 {
		t.Fatalf("it runs as somebody else: %+v", all)
	}
	status := w.Root("cat", fmt.Sprintf("/proc/%d/status", all[i].Pid)).Stdout
	for _, set := range []string{"CapPrm", "CapEff", "CapInh", "CapAmb"} {
		if !strings.Contains(status, set+":\t0000000000000000\n") {
			t.Errorf("it holds %s: %s", set, status)
		}
	}
	// A file that is old is not served. A directory in the place of the next one keeps the keeper from writing it.
	if r := w.Root("sh", "-c", "cd /run/agent-init; until rm -f metrics.prom.new && mkdir metrics.prom.new; do :; done; touch -d '1 hour ago' metrics.prom"); r.Code != 0 {
		t.Fatalf("%s", r)
	}
	if got := scrape(w, "/metrics"); !strings.HasPrefix(got, "HTTP/1.1 503 ") || strings.Contains(got, "agent_init_healthy") {
		t.Errorf("%s", got)
	}
	if r := w.Root("agent-init", "metrics"); r.Code != 1 || r.Stdout != "" || !strings.Contains(r.Stderr, "the keeper has not reported since") {
		t.Errorf("%s", r)
	}
	server.Signal(syscall.SIGTERM)
	server.Wait(0)
}
