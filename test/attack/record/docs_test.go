package record

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestDocs types the examples of docs/operating.md one after another, as the
// agent and as root, and compares what is printed with what stands there: all but
// numbers, times and the names of months has to be the same.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile("../../../docs/operating.md")
	rig.Must(t, err)
	w := rig.Confine(t, "ok.test\n", lab.BoxOptions{
		Files: []lab.File{
			{Path: "/etc/agent-init/allowlist.d", Dir: true},
			{Path: "/etc/agent-init/policy.yaml", Data: []byte("broker: {anthropic: {}}\n")},
		},
		Env:   []string{"ANTHROPIC_API_KEY=" + rig.BrokerKey},
		Tmpfs: []string{"/var/lib/agent-init:mode=0755,size=1m"}, // a volume, as run lines have one
	})
	for n := range 2 { // what the first example is about
		w.Poke("dns", rig.At(lab.Upstream4, 53), "registry.example.com", "A")
		if !rig.Eventually(20*time.Second, func() bool {
			return len(w.Audit(func(e rig.Event) bool { return e.Name == "registry.example.com" })) > n
		}) {
			t.Fatal("a refusal is not in the log")
		}
	}
	typed := 0
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(data), -1) {
		for _, c := range commandsOf(block[1], 0) {
			if strings.Contains(c.text, "docker ") {
				continue
			}
			typed++
			cmd := lab.Cmd{Args: []string{"sh", "-c", "exec 2>&1; " + c.text}, Timeout: lab.Patience}
			if !c.root {
				cmd.UID = lab.AgentUID
			}
			r := w.Box.Exec(cmd)
			if r.Code != 0 {
				t.Errorf("%s%s: %s", c.prompt(), c.text, r)
			}
			if got, want := timeless(r.Stdout), timeless(strings.Join(c.prints, "\n")); len(c.prints) > 0 && got != want {
				t.Errorf("%s%s\nprints\n%s\nand should\n%s", c.prompt(), c.text, got, want)
			}
		}
	}
	if typed < 10 {
		t.Errorf("only %d commands were found", typed)
	}
}

// timeless is a text without what differs from day to day, and how it is wrapped.
func timeless(text string) string {
	text = regexp.MustCompile(`\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b`).ReplaceAllString(text, "MONTH")
	text = regexp.MustCompile(`\b\d+:[0-9a-f]{24}\b`).ReplaceAllString(text, "HEAD")
	text = regexp.MustCompile(`\d+`).ReplaceAllString(text, "N")
	text = regexp.MustCompile(` by (\w+ \(N\)|uid N)`).ReplaceAllString(text, "") // the process may be gone before it is found
	return strings.Join(strings.Fields(text), " ")
}
