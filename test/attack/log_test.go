package attack

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

const auditFile = "/var/log/agent-init/audit.jsonl"

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
	w := startIn(t, lab.New(t, lab.Options{}), "ok.test\n*.cdn.test\n", lab.BoxOptions{
		Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte("log: {stdout: true}\n")}},
	}, "agent-init", "run", "--", "sleep", "infinity")
	w.ready()
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
		if p := w.poke("dns", "-raw", question(labels...), "8.8.8.8:53"); len(values(p, "addrs")) > 0 {
			t.Errorf("%q was answered: %s", labels, p)
		}
	}
	w.poke("dns", "8.8.8.8:53", "last.test", "A")
	w.audited("the last question", func(e event) bool { return e.Name == "last.test" })
	// Those whose process is looked for come a moment later.
	denied := 0
	if !eventually(lab.Patience, func() bool {
		denied = len(w.audit(func(e event) bool { return e.Kind == "dns" && e.Verdict != "allow" && e.Name != "last.test" }))
		return denied >= len(hostile)
	}) {
		t.Errorf("of %d hostile questions only %d are in the log", len(hostile), denied)
	}
	data, err := w.box.ReadFile(auditFile)
	must(t, err)
	for where, text := range map[string]string{"log": string(data), "standard output": w.agent.Stdout()} {
		wellFormed(t, where, text)
	}
	for _, e := range w.audit(func(e event) bool { return e.Verdict == "allow" && e.Name != "ok.test" && e.Name != "cdn.test" }) {
		t.Errorf("allowed, or so it says: %+v", e)
	}
	for _, q := range w.lab.Queries() {
		if q.Name != "ok.test" && q.Name != "cdn.test" {
			t.Errorf("a server was asked for %q", q.Name)
		}
	}
}

// wellFormed fails the test unless every line of text is one event of the
// schema, in printable ASCII, and the numbers go up by one.
func wellFormed(t *testing.T, where, text string) {
	t.Helper()
	if text == "" || !strings.HasSuffix(text, "\n") {
		t.Errorf("%s: empty or torn", where)
	}
	last := 0.0
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if i := strings.IndexFunc(line, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
			t.Errorf("%s: byte %#x in %q", where, line[i], line)
		}
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("%s: %v in %q", where, err, line)
			continue
		}
		for field := range e {
			if !slices.Contains([]string{"seq", "time", "event", "verdict", "name", "ip", "port", "proto", "rule", "reason", "by", "uid", "pid", "comm", "suppressed", "prev"}, field) {
				t.Errorf("%s: the field %q in %q", where, field, line)
			}
		}
		if seq, _ := e["seq"].(float64); last != 0 && seq != last+1 {
			t.Errorf("%s: %v follows %v", where, e["seq"], last)
		}
		last, _ = e["seq"].(float64)
	}
}

var _ = also(TestLogFloodIsCounted, inModes|underStress)

// TestLogFloodIsCounted: 20,000 refusals of each kind (100,000 with make stress) take little of
// the disk and push nothing else out of sight.
func TestLogFloodIsCounted(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	w.poke("resolve", "before.test")
	w.audited("what came before", func(e event) bool { return e.Name == "before.test" })
	n := often(20_000, 100_000)
	var wg sync.WaitGroup
	var names, packets lab.Result
	wg.Go(func() {
		names = w.box.Exec(lab.Cmd{Timeout: 10 * time.Minute, Args: []string{"agent-init", "exec", "--", "poke", "dns", "-n", strconv.Itoa(n), "-c", "16", "8.8.8.8:53", "{n}.evil.test", "A"}})
	})
	wg.Go(func() {
		packets = w.box.Exec(lab.Cmd{Timeout: 10 * time.Minute, Args: []string{"agent-init", "exec", "--", "poke", "flood", "-n", strconv.Itoa(n), "-spread", "50000", "1.1.0.0:9"}})
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
		w.works("http", "https://ok.test/")
	}
	if served < 3 {
		t.Errorf("only %d requests were served meanwhile", served)
	}
	for what, r := range map[string]lab.Result{"names": names, "packets": packets} {
		p, err := lab.ParsePoke(r.Stdout)
		must(t, err)
		if p.Detail["n"] != float64(n) || p.Detail["failed"] != float64(n) {
			t.Errorf("%s: not all were tried and refused: %s", what, p)
		}
	}
	w.poke("resolve", "after.test")
	w.audited("what came after", func(e event) bool { return e.Name == "after.test" })
	w.audited("what came before", func(e event) bool { return e.Name == "before.test" })

	size := 0
	for _, f := range logFiles(t, w) {
		size += len(f)
	}
	if size > 4<<20 {
		t.Errorf("the flood took %d bytes of the disk", size)
	}
	w.audited("a summary of names", func(e event) bool { return e.Kind == "dns" && e.Verdict == "deny" && e.Suppressed > 1000 })
	w.audited("refused packets", func(e event) bool { return e.Kind == "drop" && strings.HasPrefix(e.IP, "1.1.") })
	w.unasked("evil.test")
	w.sealed(lab.ToAddr("1.1.0.0/16"))
	if s, code := w.status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

// logFiles returns the contents of the audit log's files.
func logFiles(t *testing.T, w *world) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	r := w.root("sh", "-c", "ls "+auditFile+"*")
	for _, path := range strings.Fields(r.Stdout) {
		data, err := w.box.ReadFile(path)
		must(t, err)
		out[path] = data
	}
	return out
}

var _ = also(TestFloodedLogRotates, inModes|underStress)

// TestFloodedLogRotates: the disk that the log takes is bounded by the policy,
// and what is left of it is whole.
func TestFloodedLogRotates(t *testing.T) {
	lab.Require(t)
	w := startIn(t, lab.New(t, lab.Options{}), allowlist, lab.BoxOptions{
		Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte("log: {max_size: 64KiB, files: 3}\n")}},
	}, "agent-init", "run", "--", "sleep", "infinity")
	w.ready()
	for range 3 {
		w.poke("dns", "-n", "3000", "-c", "8", "8.8.8.8:53", "{n}."+strings.Repeat("x", 60)+".evil.test", "A")
	}
	files := logFiles(t, w)
	if len(files) != 3 {
		t.Errorf("there are %d files", len(files))
	}
	for path, data := range files {
		if len(data) > 64<<10 {
			t.Errorf("%s has %d bytes", path, len(data))
		}
		wellFormed(t, path, string(data))
	}
	if _, ok := files[auditFile]; !ok {
		t.Errorf("no current file: %v", os.ErrNotExist)
	}
}

// TestLogOfTheStart: what the keeper's own self-test provokes is not told as the
// agent's doing, neither at once nor in a summary at the end.
func TestLogOfTheStart(t *testing.T) {
	w := startIn(t, newLab(t), allowlist, lab.BoxOptions{
		Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte("log: {stdout: true}\n")}},
	}, "agent-init", "run", "--", "sleep", "infinity")
	w.ready()
	for i := range 3 { // and what it does do is there
		w.poke("resolve", fmt.Sprintf("n%d.after.test", i))
		w.audited("a question", func(e event) bool { return e.Name == fmt.Sprintf("n%d.after.test", i) })
	}
	must(t, w.agent.Signal(unix.SIGTERM))
	w.agent.Wait(0)
	told := w.agent.Stdout()
	if !strings.Contains(told, `"event":"selftest"`) || !strings.Contains(told, "agent ended") {
		t.Fatalf("proves nothing: %s", told)
	}
	for line := range strings.Lines(told) {
		if strings.Contains(line, `"verdict":"deny"`) && !strings.Contains(line, `"by":"selftest"`) && !strings.Contains(line, ".after.test") {
			t.Errorf("the agent has done nothing, and the log has %s", line)
		}
	}
}
