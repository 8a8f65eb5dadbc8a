package record

import (
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// question is a DNS query for an A record in hex, whose labels hold whatever
// bytes.
func question(labels ...string) string {
	m := []byte{0xbe, 0xef, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for _, l := range labels {
		m = append(append(m, byte(len(l))), l...)
	}
	return hex.EncodeToString(append(m, 0, 0, 1, 0, 1))
}

// TestLogCantBeForged: no name that the agent asks for ends a line of the
// log, forges a field or an event, or reaches a terminal that shows it.
func TestLogCantBeForged(t *testing.T) {
	lab.Require(t)
	w := rig.StartIn(t, lab.New(t, lab.Options{}), "ok.test\n*.cdn.test\n", lab.BoxOptions{
		Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte("log: {stdout: true}\n")}},
	}, "agent-init", "run", "--", "sleep", "infinity")
	w.Ready()
	hostile := [][]string{
		{`a","verdict":"allow","x":"`, "test"},
		{`"}` + "\n" + `{"seq":1,"event":"dns","verdict":"allow","name":"f"}` + "\n"},
		{"\x1b[2J\x1b[1;31m\x1b]0;title\x07\x1b]52;c;bGVhaw==\x07", "test"},
		{"\r\n", "\x00", "\x7f\x80\xff", "\xc3\x28", "\u202e\u2028\u2066", `\u0022\n`, "${PATH}%s%n", "<script>", "test"},
		{strings.Repeat("\"", 63), strings.Repeat("\\", 63), strings.Repeat("\x01", 63), strings.Repeat("\xff", 50)},
		{"ok.test"}, // one label, with a dot in it
		{"ok", "test\x00"},
		{"ok\x00", "test"},
		{"x.cdn.test"},
		{"a\n", "cdn", "test"}, // allowed as a name below a wildcard, but for its letters
		{"\x1b[31m", "cdn", "test"},
	}
	for _, labels := range hostile {
		if p := w.Poke("dns", "-raw", question(labels...), "8.8.8.8:53"); len(rig.Values(p, "addrs")) > 0 {
			t.Errorf("%q was answered: %s", labels, p)
		}
	}
	w.Poke("dns", "8.8.8.8:53", "last.test", "A")
	w.Audited("the last question", func(e rig.Event) bool { return e.Name == "last.test" })
	// Those whose process is looked for come a moment later.
	denied := 0
	if !rig.Eventually(lab.Patience, func() bool {
		denied = len(w.Audit(func(e rig.Event) bool { return e.Kind == "dns" && e.Verdict != "allow" && e.Name != "last.test" }))
		return denied >= len(hostile)
	}) {
		t.Errorf("of %d hostile questions only %d are in the log", len(hostile), denied)
	}
	data, err := w.Box.ReadFile(rig.AuditFile)
	rig.Must(t, err)
	for where, text := range map[string]string{"log": string(data), "standard output": w.Agent.Stdout()} {
		rig.WellFormed(t, where, text)
	}
	for _, e := range w.Audit(func(e rig.Event) bool { return e.Verdict == "allow" && e.Name != "ok.test" && e.Name != "cdn.test" }) {
		t.Errorf("allowed, or so it says: %+v", e)
	}
	for _, q := range w.Lab.Queries() {
		if q.Name != "ok.test" && q.Name != "cdn.test" {
			t.Errorf("a server was asked for %q", q.Name)
		}
	}
}

var _ = rig.Also(TestLogFloodIsCounted, rig.InModes|rig.UnderStress)

// TestLogFloodIsCounted: 20,000 refusals of each kind (100,000 with make stress) take little of
// the disk and push nothing else out of sight.
func TestLogFloodIsCounted(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	w.Poke("resolve", "before.test")
	w.Audited("what came before", func(e rig.Event) bool { return e.Name == "before.test" })
	n := rig.Often(20_000, 100_000)
	var wg sync.WaitGroup
	var names, packets lab.Result
	wg.Go(func() {
		names = w.Box.Exec(lab.Cmd{Args: []string{"agent-init", "exec", "--", "poke", "dns", "-n", strconv.Itoa(n), "-c", "16", "8.8.8.8:53", "{n}.evil.test", "A"}})
	})
	wg.Go(func() {
		packets = w.Box.Exec(lab.Cmd{Args: []string{"agent-init", "exec", "--", "poke", "flood", "-n", strconv.Itoa(n), "-spread", "50000", "1.1.0.0:9"}})
	})
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	served := 0
	for flooding := true; flooding; served++ {
		select {
		case <-done:
			flooding = false
		default:
		}
		w.Works("http", "https://ok.test/")
	}
	if served < 3 {
		t.Errorf("only %d requests were served meanwhile", served)
	}
	for what, r := range map[string]lab.Result{"names": names, "packets": packets} {
		p, err := lab.ParsePoke(r.Stdout)
		rig.Must(t, err)
		if p.Detail["n"] != float64(n) || p.Detail["failed"] != float64(n) {
			t.Errorf("%s: not all were tried and refused: %s", what, p)
		}
	}
	w.Poke("resolve", "after.test")
	w.Audited("what came after", func(e rig.Event) bool { return e.Name == "after.test" })
	w.Audited("what came before", func(e rig.Event) bool { return e.Name == "before.test" })

	size := 0
	for _, f := range logFiles(t, w) {
		size += len(f)
	}
	if size > 4<<20 {
		t.Errorf("the flood took %d bytes of the disk", size)
	}
	w.Audited("a summary of names", func(e rig.Event) bool { return e.Kind == "dns" && e.Verdict == "deny" && e.Suppressed > 1000 })
	w.Audited("refused packets", func(e rig.Event) bool { return e.Kind == "drop" && strings.HasPrefix(e.IP, "1.1.") })
	w.Unasked("evil.test")
	w.Sealed(lab.ToAddr("1.1.0.0/16"))
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

// logFiles returns the contents of the audit log's files.
func logFiles(t *testing.T, w *rig.World) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	r := w.Root("sh", "-c", "ls "+rig.AuditFile+"*")
	for _, path := range strings.Fields(r.Stdout) {
		data, err := w.Box.ReadFile(path)
		rig.Must(t, err)
		out[path] = data
	}
	return out
}

var _ = rig.Also(TestFloodedLogRotates, rig.InModes|rig.UnderStress)

// TestFloodedLogRotates: the disk that the log takes is bounded by the policy,
// and what is left of it is whole.
func TestFloodedLogRotates(t *testing.T) {
	lab.Require(t)
	w := rig.StartIn(t, lab.New(t, lab.Options{}), rig.Allowlist, lab.BoxOptions{
		Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte("log: {max_size: 64KiB, files: 3}\n")}},
	}, "agent-init", "run", "--", "sleep", "infinity")
	w.Ready()
	for range 3 {
		w.Poke("dns", "-n", "3000", "-c", "8", "8.8.8.8:53", "{n}."+strings.Repeat("x", 60)+".evil.test", "A")
	}
	files := logFiles(t, w)
	if len(files) != 3 {
		t.Errorf("there are %d files", len(files))
	}
	for path, data := range files {
		if len(data) > 64<<10 {
			t.Errorf("%s has %d bytes", path, len(data))
		}
		rig.WellFormed(t, path, string(data))
	}
	if _, ok := files[rig.AuditFile]; !ok {
		t.Errorf("no current file: %v", os.ErrNotExist)
	}
}

// TestLogOfTheStart: what the keeper's own self-test provokes is not told as the
// agent's doing, neither at once nor in a summary at the end.
func TestLogOfTheStart(t *testing.T) {
	w := rig.StartIn(t, rig.NewLab(t), rig.Allowlist, lab.BoxOptions{
		Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte("log: {stdout: true}\n")}},
	}, "agent-init", "run", "--", "sleep", "infinity")
	w.Ready()
	for i := range 3 { // and what it does do is there
		w.Poke("resolve", fmt.Sprintf("n%d.after.test", i))
		w.Audited("a question", func(e rig.Event) bool { return e.Name == fmt.Sprintf("n%d.after.test", i) })
	}
	rig.Must(t, w.Agent.Signal(unix.SIGTERM))
	w.Agent.Wait(0)
	told := w.Agent.Stdout()
	if !strings.Contains(told, `"event":"selftest"`) || !strings.Contains(told, "agent ended") {
		t.Fatalf("proves nothing: %s", told)
	}
	for line := range strings.Lines(told) {
		if strings.Contains(line, `"verdict":"deny"`) && !strings.Contains(line, `"by":"selftest"`) && !strings.Contains(line, ".after.test") {
			t.Errorf("the agent has done nothing, and the log has %s", line)
		}
	}
}
