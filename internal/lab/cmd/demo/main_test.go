package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestLabDemo: the demo ends well, and fails where a line of it shows nothing: what
// was never possible was refused by nobody, and what works was not refused.
func TestLabDemo(t *testing.T) {
	lab.Require(t)
	if d := (&demo{agent: agent}); d.run() != 0 {
		t.Errorf("the demo failed: %q", d.failed)
	}
	const end = "echo 'the agent waits'"
	d := &demo{agent: bytes.Replace(agent, []byte(end),
		[]byte("mustnt 'never possible' no-such-program\nmustnt 'not refused' true\nmay 'not allowed' false\n"+end), 1)}
	if d.run() == 0 {
		t.Error("the demo did not fail")
	}
	all := strings.Join(d.failed, "\n")
	for _, want := range []string{`"never possible" does not work without agent-init either`, `"not refused" is allowed, and should be refused`,
		`"not allowed" is refused, and should be allowed`} {
		if !strings.Contains(all, want) {
			t.Errorf("it did not say: %s\nbut: %s", want, all)
		}
	}
}

// TestEvents: the log's lines fit a terminal, with their ports whole, and are what the
// agent did.
func TestEvents(t *testing.T) {
	got := events(`{"event":"drop","verdict":"deny","ip":"2606:4700:4700::1111","port":443,"proto":"tcp","reason":"no entry allows this address and port"}
{"event":"drop","verdict":"deny","ip":"8.8.8.8","proto":"icmp","by":"selftest"}
{"event":"dns","verdict":"allow","name":"docs.ok.test","rule":"allowlist.txt:2","reason":"x"}
`)
	want := `deny  tcp [2606:4700:4700::1111]:443   no entry allows this address and port
allow dns docs.ok.test                 allowlist.txt:2
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for line := range strings.Lines(got) {
		if len(line) > 79 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}

func TestRow(t *testing.T) {
	for said, end := range map[string]string{
		"curl: (6) Could not resolve host: evil.test": "  Could not resolve host:…",
		"no answer: NXDOMAIN":                         "  no answer: NXDOMAIN",
		"curl: (28) Timeout":                          "  Timeout",
	} {
		row := try{what: "data in a DNS query, to 8.8.8.8", took: "8", said: said}.row("refused")
		if !strings.HasSuffix(row, end) || len([]rune(row)) > 78 {
			t.Errorf("%q", row)
		}
	}
}
