package judge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/pkg/route"
)

const (
	zero = "0000000000000000000000000000000000000000"
	some = "5d0c1f4e8a7b4c2d9e6f3a1b0c8d7e6f5d0c1f4e"
)

// pushOf is the beginning of a request that has such lines. A line that begins with = stands as it is.
func pushOf(lines ...string) string {
	var b strings.Builder
	for _, line := range lines {
		if raw, ok := strings.CutPrefix(line, "="); ok {
			b.WriteString(raw)
		} else {
			b.Write(pktLine(line))
		}
	}
	return b.String() + "0000"
}

func command(ref string) string { return zero + " " + some + " " + ref }

const able = "\x00 report-status-v2 side-band-64k object-format=sha1 agent=git/2.39.5"

// TestPush holds which pushes pass, and that one command among many that may not pass has none pass.
func TestPush(t *testing.T) {
	agents := []string{"agent/*", "refs/tags/v*"}
	for name, tt := range map[string]struct {
		branches []string
		lines    []string
		refused  string // a part of it; "": it passes
	}{
		"a branch":              {agents, []string{command("refs/heads/agent/x") + able}, ""},
		"with a newline":        {agents, []string{command("refs/heads/agent/x") + able + "\n"}, ""},
		"any branch":            {nil, []string{command("refs/heads/main") + able}, ""},
		"nothing, as a probe":   {agents, nil, ""},
		"several":               {agents, []string{command("refs/heads/agent/x") + able, command("refs/tags/v1")}, ""},
		"a deletion":            {agents, []string{some + " " + zero + " refs/heads/agent/x" + able}, ""},
		"shallow":               {agents, []string{"shallow " + some, command("refs/heads/agent/x") + able}, ""},
		"SHA-256":               {agents, []string{zero + zero[:24] + " " + some + some[:24] + " refs/heads/agent/x" + able}, ""},
		"options, any branch":   {nil, []string{command("refs/heads/main") + able + " push-options"}, ""},
		"another branch":        {agents, []string{command("refs/heads/main") + able}, "refs/heads/main is not among"},
		"another, last":         {agents, []string{command("refs/heads/agent/x") + able, command("refs/heads/main")}, "refs/heads/main is not among"},
		"deletes another":       {agents, []string{some + " " + zero + " refs/heads/main" + able}, "not among"},
		"below":                 {agents, []string{command("refs/heads/agent/x/y") + able}, "not among"},
		"in another case":       {agents, []string{command("refs/heads/Agent/x") + able}, "not among"},
		"a tag":                 {agents, []string{command("refs/tags/w1") + able}, "not among"},
		"a tag as a branch":     {agents, []string{command("refs/tags/agent/x") + able}, "not among"},
		"a review":              {agents, []string{command("refs/for/main") + able}, "not among"},
		"a branch of a remote":  {agents, []string{command("refs/remotes/heads/agent/x") + able}, "not among"},
		"outside of refs":       {agents, []string{command("HEAD") + able}, "not the name of a ref"},
		"up and out":            {agents, []string{command("refs/heads/agent/../main") + able}, "not the name of a ref"},
		"a NUL in the ref":      {agents, []string{command("refs/heads/agent/x\x00y\x00") + able}, "commands of git's"},
		"a newline in the ref":  {agents, []string{command("refs/heads/agent/x\n"+command("refs/heads/main")) + able}, "not the name of a ref"},
		"a tab":                 {agents, []string{command("refs/heads/agent/x\ty") + able}, "not the name of a ref"},
		"no UTF-8":              {agents, []string{command("refs/heads/agent/\xff") + able}, "not the name of a ref"},
		"turned around":         {agents, []string{command("refs/heads/agent/\u202ex") + able}, "not the name of a ref"},
		"a lock":                {agents, []string{command("refs/heads/agent/x.lock") + able}, "not the name of a ref"},
		"a pattern":             {agents, []string{command("refs/heads/agent/*") + able}, "not the name of a ref"},
		"an empty segment":      {agents, []string{command("refs/heads/agent//x") + able}, "not the name of a ref"},
		"a slash at the end":    {agents, []string{command("refs/heads/agent/") + able}, "not the name of a ref"},
		"options":               {agents, []string{command("refs/heads/agent/x") + able + " push-options"}, "push options"},
		"options, by a tab":     {agents, []string{command("refs/heads/agent/x") + able + "\tpush-options"}, "commands of git's"},
		"options, by a line":    {agents, []string{command("refs/heads/agent/x") + able + "\npush-options\n"}, "commands of git's"},
		"options, by a return":  {agents, []string{command("refs/heads/agent/x") + able + "\rpush-options"}, "commands of git's"},
		"options, by a NUL":     {agents, []string{command("refs/heads/agent/x") + able + "\x00push-options"}, "commands of git's"},
		"signed":                {nil, []string{"push-cert" + able, "certificate version 0.1\n"}, "signed"},
		"signed, later":         {nil, []string{command("refs/heads/main") + able, "push-cert\x00x"}, "signed"},
		"an unknown capability": {nil, []string{command("refs/heads/main") + able + " push-atlas"}, "not known"},
		"capable twice":         {nil, []string{command("refs/heads/main") + able, command("refs/heads/b") + "\x00push-options"}, "commands of git's"},
		"no old object":         {nil, []string{some + " refs/heads/main"}, "commands of git's"},
		"two blanks":            {nil, []string{zero + "  " + some + " refs/heads/main"}, "commands of git's"},
		"upper case":            {nil, []string{zero + " " + strings.ToUpper(some) + " refs/heads/main"}, "commands of git's"},
		"two kinds of objects":  {nil, []string{zero + " " + some + some[:24] + " refs/heads/main"}, "commands of git's"},
		"a pack at once":        {nil, []string{"=PACK"}, "commands of git's"},
		"an empty line":         {nil, []string{"=0004"}, "commands of git's"},
		"a delimiter":           {nil, []string{"=0001"}, "commands of git's"},
		"a sign":                {nil, []string{"=+0a4"}, "commands of git's"},
		"shallow with a NUL":    {nil, []string{"shallow " + some + "\x00push-options", command("refs/heads/main")}, "commands of git's"},
		"too many":              {nil, strings.Split(strings.Repeat(command("refs/heads/main")+"|", MaxCommands/80), "|")[:MaxCommands/80], "fewer refs"},
	} {
		r := route.Route{Name: "github", Git: route.Git{Write: true, Branches: tt.branches}}
		from := strings.NewReader(pushOf(tt.lines...) + "PACK")
		_, refused, err := ReadPush(&r, from)
		switch {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.refused == "" && refused != nil:
			t.Errorf("%s: refused: %s", name, refused.Text)
		case tt.refused == "" && from.Len() != len("PACK"):
			t.Errorf("%s: %d bytes are left", name, from.Len())
		case tt.refused != "" && (refused == nil || !strings.Contains(refused.Text, tt.refused)):
			t.Errorf("%s: %v, want %q", name, refused, tt.refused)
		}
	}
}

// TestPushCutOff holds that what ends before its commands do is no push.
func TestPushCutOff(t *testing.T) {
	whole := pushOf(command("refs/heads/a")+able, command("refs/heads/b"))
	for n := range len(whole) {
		if _, refused, err := ReadPush(&route.Route{}, strings.NewReader(whole[:n])); refused != nil || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("of %d bytes: %v, %v", n, refused, err)
		}
	}
}

// TestRefusedPush holds that a refusal names each ref, in the form that the client has asked for.
func TestRefusedPush(t *testing.T) {
	r := route.Route{Name: "github", Git: route.Git{Write: true, Branches: []string{"agent/*"}}}
	p, refused, _ := ReadPush(&r, strings.NewReader(pushOf(command("refs/heads/agent/x")+"\x00report-status", command("refs/heads/main"))))
	got, ok := p.Refused(refused)
	const why = " refused by agent-init: refs/heads/main is not among what route github may push (branches: agent/*)\n"
	want := pushOf("unpack ok\n", "ng refs/heads/agent/x"+why, "ng refs/heads/main"+why)
	if !ok || string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.sideband = true
	if got, _ := p.Refused(refused); string(got) != pushOf("\x01"+want) {
		t.Errorf("in a band: %q", got)
	}
	if p.reports = false; p != nil {
		if got, ok := p.Refused(refused); ok {
			t.Errorf("for who reads no report: %q", got)
		}
	}
	p = &Push{reports: true, sideband: true}
	for i := range 3000 {
		p.Refs = append(p.Refs, fmt.Sprint("refs/heads/", i))
	}
	big, _ := p.Refused(refused)
	for rest := bytes.NewReader(big); ; {
		line, flush, err := readLine(rest)
		if err != nil || !flush && line[0] != 1 {
			t.Fatalf("a long report has %.20q, %v", line, err)
		}
		if flush {
			break
		}
	}
}

// TestRefsAsGit holds that no name passes that git takes for none.
func TestRefsAsGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		mustrun.Lacks(t, "git to compare with: %v", err)
	}
	for _, name := range []string{
		"refs/heads/a", "refs/heads/a/b", "refs/heads/é", "refs/heads/a.", "refs/heads/.a", "refs/heads/a..b", "refs/heads/a.lock", "refs/heads/a.lock/b",
		"refs/heads/@", "refs/heads/a@{b", "refs/heads/a@b", "refs/heads/a b", "refs/heads/a~", "refs/heads/a^", "refs/heads/a:", "refs/heads/a?", "refs/heads/a*",
		"refs/heads/a[", "refs/heads/a\\", "refs/heads/", "refs//a", "refs/heads/-a", "refs/heads/{a}", "refs/heads/a]", "refs/x", "refs/heads/日本", "refs/heads/a\x7f",
	} {
		if err := exec.Command(git, "check-ref-format", name).Run(); isRef(name) && err != nil || !isRef(name) && err == nil {
			t.Errorf("%q: %v, and git says %v", name, isRef(name), err)
		}
	}
}

// FuzzPush holds that what passes is what another reader of the same bytes finds in them.
func FuzzPush(f *testing.F) {
	f.Add(pushOf(command("refs/heads/agent/x")+able) + "PACK")
	f.Add(pushOf("shallow "+some, command("refs/heads/agent/x")+able, command("refs/heads/main")))
	f.Add(pushOf("push-cert" + able))
	f.Add(pushOf(command("refs/heads/agent/x") + able + "\tpush-options"))
	f.Add("0000")
	f.Fuzz(func(t *testing.T, body string) {
		r := route.Route{Name: "r", Git: route.Git{Write: true, Branches: []string{"agent/*"}}}
		from := strings.NewReader(body)
		p, refused, err := ReadPush(&r, from)
		if answer, ok := p.Refused(refuse("push", "x")); ok && !bytes.HasSuffix(answer, []byte("0000")) {
			t.Errorf("the report ends in %q", answer)
		}
		if refused != nil || err != nil {
			return
		}
		read := body[:len(body)-from.Len()]
		if !strings.HasSuffix(read, "0000") || strings.Count(read, "refs/") < len(p.Refs) {
			t.Errorf("of %q %q was read", body, p.Refs)
		}
		// As git's receive-pack does: a line up to its NUL, the ref behind two names of objects.
		for rest := read; rest != "0000"; {
			var n int
			if _, err := fmt.Sscanf(rest[:4], "%04x", &n); err != nil || n <= 4 {
				t.Fatalf("a line of %q", rest)
			}
			line, capabilities, _ := strings.Cut(rest[4:n], "\x00")
			if slices.Contains(strings.Fields(capabilities), "push-options") {
				t.Fatalf("git reads options in %q", capabilities)
			}
			rest = rest[n:]
			if fields := strings.Fields(line); fields[0] != "shallow" && !strings.HasPrefix(fields[2], "refs/heads/agent/") {
				t.Fatalf("%q passes", line)
			}
		}
	})
}
