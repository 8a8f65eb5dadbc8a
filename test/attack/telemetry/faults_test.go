package telemetry

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestTelemetryFaults: each event of the log arrives at the collector once, whatever befalls the way there.
func TestTelemetryFaults(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := telemeter(t, l, "")
	c := w.c
	w.arrives("first.evil.test")
	// A collector that is ill holds nobody up, and gets all of it later.
	c.answers(http.StatusServiceUnavailable)
	w.Blocked("resolve", "second.evil.test")
	if !rig.Eventually(0, func() bool { return strings.Contains(told(w.World).Why, "503") && c.wasAsked() > 1 }) {
		t.Errorf("the status does not say that the collector is ill: %+v", told(w.World))
	}
	if _, code := w.Status(); code != 0 {
		t.Error("an ill collector makes the container unhealthy")
	}
	w.Works("http", "-ca", rig.Bundle, "https://ok.test/")
	for _, p := range exporters(w.World) {
		rig.Must(t, unix.Kill(p.Host, unix.SIGKILL))
	}
	c.answers(0)
	w.arrives("third.evil.test")
	w.complete("after a collector that was ill and an exporter that was killed")

	// What it refuses for good is counted, and not sent again.
	was := told(w.World)
	c.answers(http.StatusBadRequest)
	w.Blocked("resolve", "refused.evil.test")
	if !rig.Eventually(0, func() bool { return told(w.World).Refused > was.Refused }) {
		t.Errorf("not counted as refused: %+v", told(w.World))
	}
	c.answers(0)
	w.arrives("fourth.evil.test")
	if !rig.Eventually(0, func() bool { return told(w.World).Why == "" }) || told(w.World).Lost != 0 || c.has("query.hostname=refused.evil.test") {
		t.Errorf("after a refusal: %+v", told(w.World))
	}

	// A collector that somebody else vouches for gets nothing.
	other, err := lab.NewCA()
	rig.Must(t, err)
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/other.pem", other.PEM, 0o644))
	policy := "telemetry: {endpoint: 'https://" + collectorHost + "', ca: 'file:/etc/agent-init/%s'}\n"
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/policy.yaml", fmt.Appendf(nil, policy, "other.pem"), 0o644))
	c.answers(0)
	if r := w.Root("agent-init", "reload"); r.Code != 0 {
		t.Fatal(r)
	}
	w.Blocked("resolve", "fifth.evil.test")
	if !rig.Eventually(0, func() bool { return strings.Contains(told(w.World).Why, "certificate") }) {
		t.Errorf("another's certificate is taken: %+v", told(w.World))
	}
	if c.has("query.hostname=fifth.evil.test") {
		t.Error("the log went to a collector that nobody vouches for")
	}
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/right.pem", l.CA.PEM, 0o644))
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/policy.yaml", fmt.Appendf(nil, policy, "right.pem"), 0o644))
	if r := w.Root("agent-init", "reload"); r.Code != 0 {
		t.Fatal(r)
	}
	w.arrives("sixth.evil.test")
	if !c.has("query.hostname=fifth.evil.test") {
		t.Error("what waited for the right certificate did not arrive")
	}
	w.Audited("that the collector took nothing", func(e rig.Event) bool {
		return strings.HasPrefix(e.Reason, "telemetry: "+collectorHost+":443 takes nothing")
	})
	if r := w.Root("agent-init", "status"); r.Code != 0 || !strings.Contains(r.Stdout, "telemetry  "+collectorHost+":443 by http/protobuf: ") {
		t.Error(r)
	}
}

// TestTelemetryHostile: what an agent tries on the way to the collector.
func TestTelemetryHostile(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	const alias = "alias.test"
	l.DNS.SetAddrs(alias, collector4, collector6)
	w := telemeter(t, l, ", environment: true", alias)
	c := w.c
	w.arrives("first.evil.test")

	// A name of its own that leads to the collector's machine is looked into, and is no way to the collector by its
	// name.
	w.Works("http", "-ca", rig.Bundle, "https://"+alias+"/")
	for _, a := range []string{collector4, collector6} {
		w.Blocked("http", "-ca", rig.Bundle, "-addr", rig.Target(a, 443), "https://"+collectorHost+"/v1/logs")
		w.Blocked("http", "-addr", rig.Target(a, 443), "http://"+collectorHost+":443/v1/logs")
	}

	// The exporter is not the agent's to read, to end, or to write for.
	pid := exporters(w.World)[0].Pid
	r := w.Launch("sh", "-c", fmt.Sprintf(`cd /proc/%d
		for f in environ mem maps fd/5 root/etc cwd; do head -c 1 $f >/dev/null 2>&1 && echo READ $f; done
		ls fd 2>/dev/null && echo READ fd
		kill -9 %d && echo KILLED
		for f in telemetry.json audit.jsonl audit.jsonl.1 audit.head x; do echo x 2>/dev/null >>/var/log/agent-init/$f && echo WROTE $f; done
		cp /usr/local/bin/poke "$(printf '/tmp/a\n{"seq":9')" && "$(printf '/tmp/a\n{"seq":9')" resolve forged.evil.test
		exit 0`, pid, pid)).Wait(0)
	for _, bad := range []string{"READ", "KILLED", "WROTE"} {
		if strings.Contains(r.Stdout, bad) {
			t.Errorf("the agent: %s", r)
		}
	}

	// What it makes up stays a value of its own event.
	for _, name := range []string{"a\\010b.evil.test", strings.Repeat("x", 63) + "." + strings.Repeat("y", 63) + "." + strings.Repeat("z", 63) + ".evil.test", "\\000\\255.evil.test"} {
		w.Poke("dns", "127.0.0.1:53", name, "A")
	}
	w.arrives("last.evil.test")
	w.complete("after forgeries")
	c.mu.Lock()
	defer c.mu.Unlock()
	for word := range c.words {
		if strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' }) || len(word) > 1024 {
			t.Errorf("the collector was told %q", word)
		}
	}
	if len(exporters(w.World)) != 1 || exporters(w.World)[0].Pid != pid {
		t.Error("the exporter was ended")
	}
}

// TestTelemetryMoved: a collector whose name leads to a machine in here, or to a cloud's own, gets nothing.
func TestTelemetryMoved(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("moved.example.com", "127.0.0.1", "169.254.169.254", "10.9.8.7", "::1", "fd00::7")
	w := rig.ConfineIn(t, l, "ok.test\n", lab.BoxOptions{
		Binds: []lab.Bind{{Source: exporterBinary(t), Target: exporterPath}},
		Files: []lab.File{
			{Path: "/etc/agent-init/policy.yaml", Data: []byte("telemetry: {endpoint: 'https://moved.example.com', metrics: none}\n")},
			{Path: rig.Bundle, Data: l.CA.PEM},
		}})
	if !rig.Eventually(0, func() bool { return strings.Contains(told(w).Why, "address") }) {
		t.Errorf("%+v", told(w))
	}
	w.Sealed(rig.NotGuards)
	w.Works("http", "-ca", rig.Bundle, "https://ok.test/")
}

// TestTelemetryRotates: over gRPC, a collector that is away until the log has rotated past what it was to get has each
// event once, or it is counted as lost; also by an exporter that was killed in between.
func TestTelemetryRotates(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	c := newReceiver()
	l.DNS.SetAddrs(collectorHost, collector4, collector6)
	l.Web.Handle(collectorHost, c)
	w := rig.ConfineIn(t, l, "ok.test\n", lab.BoxOptions{
		Binds: []lab.Bind{{Source: exporterBinary(t), Target: exporterPath}},
		Files: []lab.File{
			{Path: "/etc/agent-init/policy.yaml", Data: []byte("log: {max_size: 64KiB, files: 2}\ntelemetry: {endpoint: 'https://" + collectorHost + "', protocol: grpc}\n")},
			{Path: rig.Bundle, Data: l.CA.PEM},
		}})
	arrives := func(name string) {
		t.Helper()
		w.Blocked("resolve", name)
		if !rig.Eventually(0, func() bool { return c.has("query.hostname=" + name) }) {
			t.Fatalf("%s does not arrive: %+v\n%s", name, told(w), w.Agent.Stderr())
		}
	}
	arrives("first.evil.test")
	c.answers(http.StatusServiceUnavailable)
	w.Blocked("resolve", "second.evil.test")
	if !rig.Eventually(0, func() bool { return strings.Contains(told(w).Why, "Unavailable") && c.wasAsked() > 1 }) {
		t.Fatalf("the status does not say that the collector is away: %+v", told(w))
	}
	place := uint64(told(w).Seq)
	rotated := func() bool { // the older of both files begins behind it
		data, err := w.Box.ReadFile(rig.AuditFile + ".1")
		line, _, _ := strings.Cut(string(data), "\n")
		var e rig.Event
		return err == nil && json.Unmarshal([]byte(line), &e) == nil && e.Seq > place+1
	}
	for round := 0; !rotated(); round++ {
		if round == 40 {
			t.Fatal("the log does not rotate")
		}
		w.Poke("dns", "-n", "1000", "-c", "8", "8.8.8.8:53", fmt.Sprintf("{n}-%d.%s.evil.test", round, strings.Repeat("x", 60)), "A")
	}
	w.Works("http", "-ca", rig.Bundle, "https://ok.test/") // the agent is none the worse
	for _, p := range exporters(w) {
		rig.Must(t, unix.Kill(p.Host, unix.SIGKILL))
	}
	c.answers(0)
	arrives("third.evil.test")
	var came, twice uint64
	count := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		came, twice = uint64(len(c.events)), 0
		for _, times := range c.events {
			if times > 1 {
				twice++
			}
		}
		at := told(w)
		return at.Why == "" && at.Lost > 0 && came+uint64(at.Lost) == uint64(at.Seq) && uint64(at.Sent) == came
	}
	if !rig.Eventually(0, count) || twice > 0 {
		t.Errorf("%d came, %d of them twice: %+v", came, twice, told(w))
	}
	w.Audited("that events were lost", func(e rig.Event) bool { return strings.Contains(e.Reason, "when it was their turn to be sent") })
}
