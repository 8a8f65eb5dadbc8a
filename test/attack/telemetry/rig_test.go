package telemetry

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

const (
	collectorHost = "otel.example.com"
	collector4    = "45.30.50.9"
	collector6    = "2a0f:30::59"
	exporterPath  = "/usr/local/bin/agent-init-exporter"
)

// exporterBinary is the exporter under test: beside agent-init, or built once.
func exporterBinary(t *testing.T) string {
	t.Helper()
	if bin := os.Getenv("AGENT_INIT_BIN"); bin != "" {
		return filepath.Join(filepath.Dir(bin), "agent-init-exporter")
	}
	path, err := buildExporter()
	rig.Must(t, err)
	return path
}

var buildExporter = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "agent-init-exporter-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "agent-init-exporter")
	build := exec.Command("go", "build", "-trimpath", "-o", path, ".")
	build.Dir, build.Env = "../../../cmd/agent-init-exporter", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the exporter: %w\n%s", err, out)
	}
	return path, os.Chmod(dir, 0o755)
})

// told is what the status says of telemetry.
func told(w *rig.World) (t struct {
	OK                            bool
	Why, Fault                    string
	Seq, Sent, Lost, Refused, UID float64
}) {
	w.Helper()
	s, _ := w.Status()
	m, _ := s["telemetry"].(map[string]any)
	t.OK, _ = m["ok"].(bool)
	t.Why, _ = m["why"].(string)
	t.Fault, _ = m["fault"].(string)
	for name, to := range map[string]*float64{"seq": &t.Seq, "sent": &t.Sent, "lost": &t.Lost, "refused": &t.Refused, "uid": &t.UID} {
		*to, _ = m[name].(float64)
	}
	return t
}

// scraped asks for the metrics from outside.
func scraped(w *rig.World, a netip.Addr) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), lab.Patience)
	defer cancel()
	conn, err := w.Lab.Internet.Dial(ctx, "tcp", rig.Target(a.String(), 9464), netip.AddrPort{})
	if err != nil {
		w.Errorf("Prometheus does not reach %s: %v", a, err)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(lab.Patience))
	fmt.Fprint(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
	if data, err := io.ReadAll(conn); err != nil || !strings.Contains(string(data), "\nagent_init_audit_head_hash{digits=") {
		w.Errorf("Prometheus at %s: %v: %s", a, err, data)
	}
}

// exporters are the processes of that program.
func exporters(w *rig.World) (all []rig.Inmate) {
	for _, p := range rig.Inmates(w.T, w.Agent) {
		if strings.HasPrefix(p.Args, exporterPath) {
			all = append(all, p)
		}
	}
	return all
}

const telemetrySecret = "canary-of-telemetry"

// telemetered is a world whose log goes to a collector.
type telemetered struct {
	*rig.World
	c *receiver
}

// telemeter has the log sent, with more settings of telemetry.
func telemeter(t *testing.T, l *lab.Lab, more string, allowed ...string) telemetered {
	t.Helper()
	c := newReceiver()
	l.DNS.SetAddrs(collectorHost, collector4, collector6)
	l.Web.Handle(collectorHost, c)
	w := rig.ConfineIn(t, l, strings.Join(append(allowed, "ok.test\n"), "\n"), lab.BoxOptions{
		Binds: []lab.Bind{{Source: exporterBinary(t), Target: exporterPath}},
		Env:   []string{"OTEL_EXPORTER_OTLP_HEADERS=api-key=" + telemetrySecret, "OTEL_SERVICE_NAME=agents-of-the-lab"},
		Files: []lab.File{
			{Path: "/etc/agent-init/policy.yaml", Data: []byte("telemetry: {endpoint: 'https://" + collectorHost + "'" + more + "}\n")},
			{Path: "/run/secrets/otel", Data: []byte("api-key=" + telemetrySecret + "\n"), Mode: 0o400},
			{Path: rig.Bundle, Data: l.CA.PEM},
		}})
	return telemetered{w, c}
}

// arrives has the agent do something, which the collector is told.
func (w telemetered) arrives(name string) {
	w.Helper()
	w.Blocked("resolve", name)
	if !rig.Eventually(0, func() bool { return w.c.has("query.hostname=" + name) }) {
		w.Fatalf("%s does not arrive: %+v\n%s", name, told(w.World), w.Agent.Stderr())
	}
}

// complete fails the test unless all that the log has arrives, once.
func (w telemetered) complete(when string) {
	w.Helper()
	var missing, twice []uint64
	if !rig.Eventually(0, func() bool { missing, twice = w.c.missing(w.World); return len(missing) == 0 }) || len(twice) > 0 {
		w.Errorf("%s: events %d are missing, and %d came twice: %+v", when, missing, twice, told(w.World))
	}
}
