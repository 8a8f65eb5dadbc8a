package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/wire"
)

// typed runs a command line.
func typed(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(environment{args: args, stdin: os.Stdin, stdout: &o, stderr: &e})
	return code, o.String(), e.String()
}

// TestNonsenseIsRefused: what can't be meant is said to be wrong, and nothing is
// said or done about it.
func TestNonsenseIsRefused(t *testing.T) {
	for _, args := range [][]string{
		{"explain", ""}, {"explain", "a b"}, {"explain", "a..b"}, {"explain", "*.example.com"}, {"explain", "--", "--json"},
		{"explain", "-bad-"}, {"explain", "!x.example"}, {"explain", "x.example required"}, {"explain", "@github"}, {"explain", "10.0.0.0/8"},
		{"allow", "x.example", "--for", "0"}, {"allow", "x.example", "--for", "-1s"}, {"grants", "--end", "0"}, {"wait", "--timeout", "-1s"},
		{"statsu"}, {"help", "atach"},
	} {
		code, out, errs := typed(args...)
		if code != fault.Usage || out != "" || strings.Count(errs, "\n") != 2 || !strings.Contains(errs, "\n  remedy: ") {
			t.Errorf("%q: exit code %d\n%s%s", args, code, out, errs)
		}
	}
	for word, want := range map[string]string{"statsu": "did you mean agent-init status?", "atach": "did you mean agent-init attach?", "frobnicate": "see agent-init --help", "__stag": "see agent-init --help"} {
		if _, _, errs := typed(word); !strings.Contains(errs, want) {
			t.Errorf("%s: %s", word, errs)
		}
	}
	if code, out, _ := typed("help", "attach"); code != fault.OK || !strings.HasPrefix(out, "agent-init attach [-r]") || !strings.Contains(out, "Ctrl-] d leaves") {
		t.Errorf("help attach: %d\n%s", code, out)
	}
}

// TestFullDisk: what can't be written whole is no success.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no /dev/full: %v", err)
	}
	defer full.Close()
	for _, args := range [][]string{{"--help"}, {"help"}, {"status", "--help"}, {"version"}, {"explain", "--help"}, {"completion", "bash"}} {
		var errs bytes.Buffer
		if code := run(environment{args: args, stdin: os.Stdin, stdout: full, stderr: &errs}); code == fault.OK || !strings.Contains(errs.String(), "no space left") {
			t.Errorf("%q: %d %s", args, code, errs.String())
		}
	}
}

// TestX55RequestsForgeNoRows: a reason is one line of text in quotes, which no
// terminal wraps into a row that looks like a grant.
func TestX55RequestsForgeNoRows(t *testing.T) {
	forged := "to build" + strings.Repeat(" ", 61) + "  12  allow  api.evil.example  10m  uid 0"
	if got := wire.PlainText(forged); strings.Contains(got, "  ") {
		t.Errorf("%q", got)
	}
	if err := wire.CheckRequest(wire.Message{Name: "a.example", Text: forged}); err == nil {
		t.Error("the keeper takes a reason with runs of blanks from the guard")
	}
	r := grant.Report{Grants: []grant.Grant{
		{Number: 3, Kind: grant.Request, Target: "a.example", Reason: "to build\u202e\u2028 it", UID: 1000, Asked: 2, Made: noon, Expires: noon.Add(grant.RequestLife)},
		{Number: 4, Kind: grant.Allow, Target: "b.example", Made: noon, Expires: noon.Add(24*time.Hour - time.Second)},
	}}
	var b strings.Builder
	if err := r.Write(&b, noon); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if len([]rune(line)) > 81 {
			t.Errorf("%d columns: %s", len([]rune(line))-1, line)
		}
	}
	for _, want := range []string{"NO  WHAT     FOR", "uid 1000, 2 times  a.example", "waits", `      because "to build?? it"`, "24h  ", "agent-init allow --request 3 --for 10m\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("want %q in\n%s", want, b.String())
		}
	}
}

// TestGrantedKeepsReason: a request that a person grants keeps what the agent said.
func TestGrantedKeepsReason(t *testing.T) {
	var b grant.Book
	g, _, err := b.Request(grant.Grant{Target: "a.example", Reason: "to build"}, noon)
	if err != nil {
		t.Fatal(err)
	}
	made, _, err := b.Put(grant.Grant{Number: g.Number, Kind: grant.Allow, Target: "a.example"}, time.Minute, noon)
	if err != nil || made.Reason != "to build" {
		t.Errorf("%+v, %v", made, err)
	}
}

// TestRoughly: a day that has just begun to pass is a day.
func TestRoughly(t *testing.T) {
	g := grant.Grant{Kind: grant.Allow, Expires: noon.Add(24*time.Hour - time.Millisecond)}
	for d, want := range map[time.Duration]string{time.Millisecond: "for 24h", time.Second: "for 24h", time.Hour: "for 23h", 23*time.Hour + 50*time.Minute: "for 10m"} {
		if got := g.Until(noon.Add(d)); got != want {
			t.Errorf("%v later: %q, want %q", d, got, want)
		}
	}
}
