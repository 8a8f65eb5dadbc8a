package grants

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

const (
	approvalKey    = "0123456789abcdef0123456789abcdef"
	approvalSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=" // the same
)

// asked is what an approver is sent.
type asked struct {
	Container, Start, Nonce, Target string
	Request                         uint32
	Seconds, Made, Ends             int64
	Means                           []string
}

// sign makes an answer of fields, by whoever has the key.
func sign(key string, fields ...any) string {
	said := strings.TrimSuffix(strings.Repeat("%v|", len(fields)), "|")
	said = fmt.Sprintf(said, fields...)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(said))
	return fmt.Sprintf("%x|%s", mac.Sum(nil), said)
}

// answer is one to a, as the approver would give it now.
func (a asked) answer(verdict string, seconds int64) string {
	now := time.Now().Unix()
	return sign(approvalKey, "answer", 1, a.Container, a.Start, a.Request, a.Nonce, a.Target, verdict, seconds, now, now+60, "ann@example.com", "one build")
}

// approver is somebody far away: a server that takes webhooks, and may answer them.
type approver struct {
	*testing.T
	mu    sync.Mutex
	got   []asked
	ids   map[string]bool
	reply func(asked) string // to the webhook
}

func (p *approver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	id, stamp := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
	mac := hmac.New(sha256.New, []byte(approvalKey))
	mac.Write([]byte(id + "." + stamp + "." + string(body)))
	if got, want := r.Header.Get("webhook-signature"), "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)); got != want || !strings.HasPrefix(id, "msg_") || p.ids[id] {
		p.Errorf("the webhook is signed %s, want %s (id %s)", got, want, id)
	}
	p.ids[id] = true
	var n struct {
		Event    string
		Approval *asked
	}
	if err := json.Unmarshal(body, &n); err != nil || (n.Event == "requested") != (n.Approval != nil) {
		p.Errorf("%s: %v", body, err)
	}
	if n.Approval != nil {
		if p.got = append(p.got, *n.Approval); p.reply != nil {
			_, _ = io.WriteString(w, p.reply(*n.Approval))
		}
	}
}

// last waits for what was asked about a target, behind the request of a number.
func (p *approver) last(target string, behind ...uint32) (a asked) {
	p.Helper()
	if !rig.Eventually(0, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, g := range p.got {
			if g.Target == target && (behind == nil || g.Request > behind[0]) {
				a = g
			}
		}
		return a.Target != ""
	}) {
		p.Fatalf("nobody was asked for %s", target)
	}
	return a
}

func (p *approver) set(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
}

// answering is a confined box whose policy has approvals, with what else settings say, and answers as files of a
// volume.
func answering(t *testing.T, l *lab.Lab, settings, more string, besides ...lab.File) (w *rig.World, p *approver, files string) {
	t.Helper()
	p = &approver{T: t, ids: map[string]bool{}}
	l.DNS.SetAddrs("ask.example.com", "45.30.50.7", "2a0f:30::57")
	for _, name := range []string{"new.test", "sub.new.test", "more.test"} {
		l.DNS.SetAddrs(name, "45.30.50.8", "2a0f:30::58")
	}
	l.Web.Handle("ask.example.com", p)
	files = t.TempDir()
	w = rig.ConfineIn(t, l, "ok.test\n", lab.BoxOptions{
		Binds: []lab.Bind{{Source: files, Target: "/etc/answers"}},
		Files: append(besides, []lab.File{
			{Path: "/etc/agent-init/policy.yaml", Data: []byte("notify: {webhook: {to: 'https://ask.example.com/hook'}}\napprovals: {secret: 'file:/run/secrets/approvals', directory: /etc/answers, " + settings + "}\n" + more)},
			{Path: "/run/secrets/approvals", Data: []byte(approvalSecret + "\n"), Mode: 0o400},
			{Path: "/etc/answers/.keep"},
			{Path: rig.Bundle, Data: l.CA.PEM},
		}...)})
	return w, p, files
}

// drop puts an answer into the volume as the kubelet does.
func drop(t *testing.T, files, name, line string) {
	t.Helper()
	hidden := filepath.Join(files, "..new")
	rig.Must(t, os.WriteFile(hidden, []byte(line+"\n"), 0o644))
	rig.Must(t, os.Rename(hidden, filepath.Join(files, name)))
}

// requests asks as the agent. Its container has no agent-init beside a sidecar, whose own has.
func requests(w *rig.World, args ...string) *lab.Process {
	args = append([]string{"agent-init", "request"}, args...)
	if w.Mode == "sidecar" {
		return w.Box.ExecStart(lab.Cmd{Args: args, UID: lab.AgentUID})
	}
	return w.Launch(args...)
}

func asks(w *rig.World, target string) {
	w.Helper()
	if r := requests(w, target, "--reason", "one build").Wait(0); r.Code != 0 {
		w.Fatal(r)
	}
}

// refusedAnswer waits until the log says why an answer was refused.
func refusedAnswer(w *rig.World, way, why string) {
	w.Helper()
	w.Audited(way+": "+why, func(e rig.Event) bool {
		return e.Kind == "grant" && e.Verdict == "deny" && e.Reason == "answer refused ("+way+"): "+why
	})
}

// TestApproval: a person far away allows what the agent has asked for, by a file. Nobody else can by any, and the
// answer opens no more, no longer, no second time, and not elsewhere.
func TestApproval(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w, p, files := answering(t, l, "most: 1h", "")
	w.Blocked("resolve", "new.test")
	asks(w, "new.test")
	a := p.last("new.test")
	if host := w.Root("hostname").Stdout; a.Container+"\n" != host || a.Request != 1 || a.Seconds != 3600 || len(a.Nonce) != 32 {
		t.Errorf("asked for %+v in %s", a, host)
	}

	// What is not the answer opens nothing.
	now := time.Now().Unix()
	fields := func(change func(f []any)) string {
		f := []any{"answer", 1, a.Container, a.Start, a.Request, a.Nonce, a.Target, "allow", 60, now, now + 60, "ann", "why"}
		change(f)
		return sign(approvalKey, f...)
	}
	good := a.answer("allow", 60)
	for name, c := range map[string]struct{ line, why string }{
		"forged":    {sign("ffffffffffffffffffffffffffffffff", strings.SplitN(good, "|", 2)[1]), "the signature is not of this key: it was forged or altered, or the key is another"},
		"altered":   {strings.Replace(good, "new.test", "evil.test", 1), "the signature is not of this key: it was forged or altered, or the key is another"},
		"bare":      {good[65:], "it is no answer"},
		"huge":      {good + strings.Repeat("x", 1<<20), "it is too long for an answer"},
		"binary":    {fields(func(f []any) { f[12] = "\xff" }), "it has other characters than printable ASCII"},
		"twice":     {fields(func(f []any) { f[12] = "a|b" }), "it has not the form of an answer: answer|1| and 11 more fields"},
		"wider":     {fields(func(f []any) { f[6] = "*.test" }), "it is about another target than was asked for"},
		"longer":    {fields(func(f []any) { f[8] = 3601 }), "it allows for 3601 seconds, and 3600 at most were asked for"},
		"late":      {fields(func(f []any) { f[9], f[10] = now-1, now-1 }), "it came too late"},
		"early":     {fields(func(f []any) { f[9], f[10] = now+3600, now+7200 }), "it was made in the future"},
		"other":     {fields(func(f []any) { f[2] = "another" }), "it is for another container"},
		"nonce":     {fields(func(f []any) { f[5] = strings.Repeat("0", 32) }), "it is for another request"},
		"unasked":   {fields(func(f []any) { f[4] = 2 }), "no such request waits: it was decided or forgotten, or this answer was used"},
		"old-start": {fields(func(f []any) { f[3] = "0123456789abcdef" }), "it is for another start of this container"},
	} {
		drop(t, files, name, c.line)
		refusedAnswer(w, "file "+name, c.why)
	}
	w.Blocked("resolve", "new.test")
	w.Blocked("resolve", "evil.test")
	w.Unasked("new.test", "evil.test")

	// The agent has neither the key, nor a place to put an answer, nor a way to who is asked.
	for _, line := range []string{"cat /run/secrets/approvals", "echo > /etc/answers/x", "mkdir -p /run/secrets/../answers", "ln -s /tmp /etc/answers/y"} {
		if r := w.Launch("sh", "-c", line).Wait(0); r.Code == 0 {
			t.Errorf("the agent can: %s", line)
		}
	}
	w.Blocked("http", "https://ask.example.com/hook")
	w.Blocked("tcp", "45.30.50.7:443")
	if data, err := w.Box.ReadFile("/run/agent-init/grants.json"); err != nil || strings.Contains(string(data), a.Nonce) {
		t.Errorf("the agent reads the nonce (%v)", err)
	}

	// What is the answer opens it, and is told to everybody.
	waits := requests(w, "new.test", "--wait", "10m")
	drop(t, files, "good", good)
	if r := waits.Wait(0); r.Code != 0 || !strings.Contains(r.Stdout, "was granted for") && !strings.Contains(r.Stdout, "is allowed now") {
		t.Errorf("who waits: %s", r)
	}
	w.Works("http", "https://new.test/")
	w.Blocked("resolve", "sub.new.test")
	w.Audited("the grant", func(e rig.Event) bool {
		return e.Kind == "grant" && e.Verdict == "allow" && e.Name == "new.test" && e.Reason == "allowed for 1m by ann@example.com from afar (file good): one build"
	})
	if out := w.Did("grants"); !strings.Contains(out, "ann@example.com from afar (file good)") {
		t.Errorf("grants says %s", out)
	}

	// It is used up, here as under another name, and after what it has opened was ended.
	drop(t, files, "again", good)
	refusedAnswer(w, "file again", "no such request waits: it was decided or forgotten, or this answer was used")
	w.Did("grants", "--end", "1")
	w.Blocked("resolve", "new.test")
	asks(w, "new.test")
	second := p.last("new.test", a.Request)
	if second.Request == a.Request || second.Nonce == a.Nonce || second.Start != a.Start {
		t.Errorf("asked for %+v, then %+v", a, second)
	}
	drop(t, files, "third", good)
	refusedAnswer(w, "file third", "no such request waits: it was decided or forgotten, or this answer was used")
	w.Blocked("resolve", "new.test")

	// Of two answers that come together, the one that denies counts.
	swap(w, t, files, map[string]string{"a": second.answer("allow", 60), "b": second.answer("deny", 0)})
	w.Audited("the denial", func(e rig.Event) bool {
		return e.Kind == "grant" && e.Reason == "turned down by ann@example.com from afar (file b): one build"
	})
	refusedAnswer(w, "file a", "no such request waits: it was decided or forgotten, or this answer was used")
	w.Blocked("resolve", "new.test")

	// Another container, and another start of this one, take no answer of this.
	asks(w, "evil.test")
	mine := p.last("evil.test")
	other, q, elsewhere := answering(t, l, "most: 1h", "")
	asks(other, "evil.test")
	theirs := q.last("evil.test")
	drop(t, elsewhere, "foreign", mine.answer("allow", 60))
	drop(t, files, "foreign", theirs.answer("allow", 60))
	for _, v := range []*rig.World{w, other} {
		v.Audited("a foreign answer", func(e rig.Event) bool {
			return strings.HasPrefix(e.Reason, "answer refused (file foreign): it is for another ")
		})
		v.Blocked("resolve", "evil.test")
	}
	if w.Mode != "" {
		return
	}
	last := mine.answer("allow", 600)
	w.Box.Kill()
	drop(t, files, "kept", last)
	w.Agent = w.Box.Start(lab.Cmd{Args: []string{"agent-init", "run", "--", "sleep", "infinity"}})
	w.Ready()
	asks(w, "evil.test")
	refusedAnswer(w, "file kept", "it is for another start of this container")
	w.Blocked("resolve", "evil.test")
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

// swap puts all files in the place of what is there, at once.
func swap(w *rig.World, t *testing.T, files string, lines map[string]string) {
	t.Helper()
	old, err := os.ReadDir(files)
	rig.Must(t, err)
	dir := filepath.Join(files, "..later")
	rig.Must(t, os.Mkdir(dir, 0o755))
	for name, line := range lines {
		rig.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(line), 0o644))
	}
	for _, e := range old {
		rig.Must(t, os.RemoveAll(filepath.Join(files, e.Name())))
	}
	for name := range lines {
		rig.Must(t, os.Symlink("..data/"+name, filepath.Join(files, name)))
	}
	rig.Must(t, os.Rename(dir, filepath.Join(files, "..data")))
}

// TestApprovalCeiling: a person far away allows nothing above the ceiling, be it lowered after they were asked.
func TestApprovalCeiling(t *testing.T) {
	l := rig.NewLab(t)
	w, p, files := answering(t, l, "most: 1h", "", ceilings("ok.test\nask.example.com\nnew.test\nsub.new.test\n", "ok.test\nask.example.com\nnew.test\n")...)
	if r := requests(w, "more.test").Wait(0); r.Code != 64 || !strings.Contains(r.Stderr, "more.test is above the ceiling: no line of it admits this\n  remedy: ask for less, or") {
		t.Error(r)
	}
	asks(w, "sub.new.test")
	lowered := p.last("sub.new.test")
	raise(w, 2)
	w.Root("agent-init", "reload")
	drop(t, files, "lowered", lowered.answer("allow", 60))
	refusedAnswer(w, "file lowered", "no such request waits: it was decided or forgotten, or this answer was used")
	w.Blocked("resolve", "sub.new.test")
	w.Blocked("resolve", "more.test")

	asks(w, "new.test")
	drop(t, files, "good", p.last("new.test").answer("allow", 60))
	w.Audited("the grant", func(e rig.Event) bool { return e.Kind == "grant" && e.Verdict == "allow" && e.Name == "new.test" })
	w.Works("resolve", "new.test")
	w.Unasked("sub.new.test", "more.test")
}

var _ = rig.Also(TestApprovalWays, rig.Everywhere)

// TestApprovalWays: an answer comes back with the webhook's, or is a file; and nothing else that a server sends.
func TestApprovalWays(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w, p, files := answering(t, l, "most: 1h", "")
	p.set(func() { p.reply = func(a asked) string { return a.answer("allow", 60) + "\n" } })
	asks(w, "new.test")
	w.Audited("the grant", func(e rig.Event) bool {
		return e.Kind == "grant" && e.Verdict == "allow" && strings.HasPrefix(e.Reason, "allowed for 1m by ann@example.com from afar (webhook)")
	})
	w.Works("http", "https://new.test/")
	if len(p.last("new.test").Means) != 0 {
		t.Error("a name means more than a name")
	}
	first := p.last("new.test").answer("allow", 60)

	p.set(func() {
		p.reply = func(asked) string { return "ok\n" + first + "\n" + strings.Repeat("|answer|", 200) + "\n" }
	})
	asks(w, "more.test private")
	a := p.last("more.test private")
	if len(a.Means) != 1 || !strings.HasPrefix(a.Means[0], "private: ") {
		t.Errorf("it means %q", a.Means)
	}
	refusedAnswer(w, "webhook", "no such request waits: it was decided or forgotten, or this answer was used")
	refusedAnswer(w, "webhook", "it is too long for an answer")
	w.Blocked("resolve", "more.test")
	drop(t, files, "late", a.answer("allow", 120))
	w.Audited("the grant", func(e rig.Event) bool {
		return e.Kind == "grant" && e.Verdict == "allow" && strings.HasPrefix(e.Reason, "allowed for 2m by ann@example.com from afar (file late)")
	})
	w.Works("resolve", "more.test")

	p.set(func() { p.reply = func(asked) string { return strings.Repeat("x", 1<<20) } })
	asks(w, "evil.test")
	drop(t, files, "deny", p.last("evil.test").answer("deny", 0))
	w.Audited("the denial", func(e rig.Event) bool {
		return e.Kind == "grant" && e.Reason == "turned down by ann@example.com from afar (file deny): one build"
	})
	w.Blocked("resolve", "evil.test")
	w.Audited("too much", func(e rig.Event) bool {
		return e.Reason == "notify: the webhook was not called: ask.example.com answered with more than 64 KiB"
	})
	w.Audited("a call", func(e rig.Event) bool { return e.Reason == "notify: ask.example.com was told of request 2" })
}

// TestApprovalHold: the first question for a name that nobody has thought of waits for a person, and for no longer
// than it may. Other questions go on, and no more wait than have a place.
func TestApprovalHold(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w, p, files := answering(t, l, "hold: 30s", "dns: {qps: 1000}\n")
	question := func(name, kind string) *lab.Process {
		return w.Launch("poke", "dns", "-timeout", "60s", rig.At(lab.Upstream4, 53), name, kind)
	}
	said := func(proc *lab.Process) lab.Poke {
		t.Helper()
		r := proc.Wait(0)
		poke, err := lab.ParsePoke(r.Stdout)
		if err != nil {
			t.Fatal(r)
		}
		return poke
	}
	first, second := question("new.test", "A"), question("new.test", "AAAA")
	a := p.last("new.test")
	w.Works("http", "https://ok.test/")
	if g := w.Grants(); len(g) != 1 || g[0].Reason != "looked up by poke, which waits" && g[0].Reason != "it was looked up, and waits" {
		t.Errorf("the request is %+v", g)
	}
	w.Unasked("new.test")
	drop(t, files, "a", a.answer("allow", 60))
	for _, q := range []*lab.Process{first, second} {
		if got := said(q); !got.OK {
			t.Errorf("what was allowed is refused: %s", got)
		}
	}
	w.Works("http", "https://new.test/")

	// glibc waits for as long as it is told, and asks again meanwhile.
	patient := w.Launch("sh", "-c", "RES_OPTIONS=timeout:30 exec getent ahostsv4 more.test")
	b := p.last("more.test")
	time.Sleep(11 * time.Second) // longer than it would
	drop(t, files, "patient", b.answer("allow", 60))
	if r := patient.Wait(0); r.Code != 0 || !strings.Contains(r.Stdout, "45.30.50.8") {
		t.Errorf("getent: %s", r)
	}

	// A no is an answer as well, and the next question does not wait for another.
	third := question("evil.test", "A")
	drop(t, files, "b", p.last("evil.test").answer("deny", 0))
	if got := said(third); got.OK || !strings.Contains(got.Err, "NXDOMAIN") {
		t.Errorf("what was turned down: %s", got)
	}
	if got := said(question("evil.test", "A")); got.OK || got.Ms > 10_000 {
		t.Errorf("asked again: %s", got)
	}
	w.Unasked("evil.test")

	// Questions of many names: as many wait as may, the others are refused at once, and all in the end.
	var many []*lab.Process
	for i := range 12 {
		many = append(many, question(fmt.Sprintf("n%d.evil.test", i), "A"))
	}
	if !rig.Eventually(0, func() bool {
		return len(w.Audit(func(e rig.Event) bool { return e.Kind == "dns" && strings.HasSuffix(e.Name, ".evil.test") })) > 0
	}) {
		t.Error("all of them wait")
	}
	w.Works("http", "https://ok.test/")
	for _, q := range many {
		if got := said(q); got.OK || !strings.Contains(got.Err, "NXDOMAIN") {
			t.Errorf("one of many: %s", got)
		}
	}
	w.Unasked("evil.test")
	waiting := 0
	for _, g := range w.Grants() {
		if g.Kind == "request" && g.Outcome == "" {
			waiting++
		}
	}
	if waiting > 8 {
		t.Errorf("%d requests wait", waiting)
	}
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}
