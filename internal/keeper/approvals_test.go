package keeper

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/approval"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
)

const approvalSecret = "0123456789abcdef0123456789abcdef"

// signAnswer is what an approver does with a request, see docs/approvals.md.
func signAnswer(ask approval.Ask, verdict string, seconds int64, made, ends time.Time) string {
	said := fmt.Sprintf("answer|1|%s|%s|%d|%s|%s|%s|%d|%d|%d|ann|why", ask.Container, ask.Start, ask.Request, ask.Nonce, ask.Target, verdict, seconds, made.Unix(), ends.Unix())
	mac := hmac.New(sha256.New, []byte(approvalSecret))
	mac.Write([]byte(said))
	return fmt.Sprintf("%x|%s", mac.Sum(nil), said)
}

func newTestApprovals(t testing.TB, settings string, events *[]audit.Event) *approvals {
	p := &publisher{log: slog.New(slog.DiscardHandler), record: func(e audit.Event) { *events = append(*events, e) }, state: state.State{Phase: state.PhaseReady}}
	b := &base{publisher: p}
	return newApprovals(&keeper{base: b, guard: &guardKeeper{}, leases: new(leases), book: newBook(b, parsePolicy(t, "approvals: {"+settings+"}\n"))})
}

// TestApprovalsInAnyOrder: whatever the order in which answers come in, however often, and whosever they are, a request
// is decided once, by an answer to it, and nothing else is ever granted.
func TestApprovalsInAnyOrder(t *testing.T) {
	const settings = "secret: 'file:/k', directory: /d, most: 10m"
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		a, other := newTestApprovals(t, settings, new([]audit.Event)), newTestApprovals(t, settings, new([]audit.Event))
		var b grant.Book
		now := time.Now()
		made := map[uint32]grant.Grant{}
		type sent struct {
			line   string
			number uint32 // of the request that it may decide; 0: none
			allow  bool
			life   int64
		}
		var all []sent
		for range 8 {
			g, _, err := b.Request(grant.Grant{Target: fmt.Sprintf("host-%d.example.com", r.IntN(8)), Longest: 600}, now)
			if err != nil {
				t.Fatal(err)
			}
			made[g.Number] = g
			ask, life := a.ask(g).Ask, int64(1+r.IntN(600))
			right := func(verdict string, life int64) sent {
				return sent{signAnswer(ask, verdict, life, now, now.Add(time.Minute)), g.Number, verdict == "allow", life}
			}
			all = append(all, right("allow", life), right("allow", 600), right("deny", 0))
			wrong := func(ask approval.Ask, life int64, made, ends time.Time) {
				all = append(all, sent{line: signAnswer(ask, "allow", life, made, ends)})
			}
			ends := now.Add(time.Minute)
			wrong(ask, 601, now, ends)
			wrong(ask, 60, now.Add(-time.Minute), now.Add(-time.Second))
			wrong(ask, 60, now.Add(time.Hour), now.Add(2*time.Hour))
			wrong(other.ask(g).Ask, 60, now, ends)
			wide := ask
			wide.Target = "*.example.com"
			wrong(wide, 60, now, ends)
			next := ask
			next.Request = g.Number + 1
			wrong(next, 60, now, ends)
		}
		all = append(all, all...) // each is replayed
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		decided := map[uint32]sent{}
		for _, s := range all {
			said, err := approval.Key(approvalSecret).Read(s.line)
			if err != nil {
				t.Fatal(err)
			}
			_, err = a.put(&b, said, "file x", now)
			_, before := decided[s.number]
			switch may := s.number != 0 && !before; {
			case (err == nil) != may:
				t.Fatalf("seed %d: %s: %v, may %t", seed, s.line, err, may)
			case err == nil:
				decided[s.number] = s
			}
		}
		for _, g := range b.List {
			s, ok := decided[g.Number]
			if asked := made[g.Number]; g.Kind != grant.Allow || !ok || !s.allow || g.Target != asked.Target || g.Expires.Sub(g.Made) != time.Duration(s.life)*time.Second || g.Afar == nil || g.Afar.Who != "ann" {
				t.Fatalf("seed %d: %+v, by %+v", seed, g, s)
			}
		}
		if len(decided) != len(made) {
			t.Fatalf("seed %d: %d decided, of %d", seed, len(decided), len(made))
		}
	}
}

// TestApprovalsNarrow: what a policy has narrowed meanwhile holds, and a request that was made before anybody was asked
// is answered by nobody.
func TestApprovalsNarrow(t *testing.T) {
	a := newTestApprovals(t, "secret: 'file:/k', directory: /d, most: 1m", new([]audit.Event))
	var b grant.Book
	now := time.Now()
	g, _, _ := b.Request(grant.Grant{Target: "a.example.com", Longest: 600}, now)
	silent, _, _ := b.Request(grant.Grant{Target: "b.example.com"}, now)
	for life, number := range map[int64]uint32{61: g.Number, 60: silent.Number} {
		ask := a.desk.Ask(number, b.Waiting(number).Target, 10*time.Minute, now, now.Add(time.Hour))
		said, err := approval.Key(approvalSecret).Read(signAnswer(ask, "allow", life, now, now.Add(time.Minute)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.put(&b, said, wayWebhook, now); err == nil {
			t.Errorf("request %d is allowed for %d seconds", number, life)
		}
	}
	if a.about(notification{Event: eventRequested, Request: silent}) != nil || a.about(notification{Event: eventDecided, Request: g}) != nil {
		t.Error("it is asked for nothing that can be answered")
	}
	if asked := a.about(notification{Event: eventRequested, Request: g}); asked == nil || asked.Seconds != 60 {
		t.Errorf("asked for %+v", asked)
	}
}

// TestApprovalFiles: each file is judged once as long as it says the same; what is wrong with it is in the log, once.
func TestApprovalFiles(t *testing.T) {
	mustrun.Root(t) // files of other owners are refused
	top := t.TempDir()
	secret, dir := filepath.Join(top, "secret"), filepath.Join(top, "answers")
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "..1"), 0o755); err != nil {
		t.Fatal(err)
	}
	var events []audit.Event
	a := newTestApprovals(t, "secret: 'file:"+secret+"', directory: "+dir, &events)
	looks := func(what string, want ...string) {
		t.Helper()
		events = nil
		for range 3 {
			a.look(t.Context())
		}
		var got []string
		for _, e := range events {
			got = append(got, e.Reason)
		}
		if len(got) != len(want) {
			t.Errorf("%s: %q, want %q", what, got, want)
			return
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
	}
	looks("nothing")
	write(filepath.Join(dir, "empty"), "", 0o644)
	looks("an annotation that is not there")
	// As a volume of Kubernetes: one -> ..data/one, ..data -> ..1
	write(filepath.Join(dir, "..1", "one"), "hello\n", 0o644)
	for link, to := range map[string]string{"..data": "..1", "one": "..data/one"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	looks("no key", "secret: file does not exist")
	write(secret, "short\n", 0o400)
	looks("a short key", "24 to 64 bytes")
	write(secret, approvalSecret+"\n", 0o444)
	looks("a key that the agent can read", "others than root can read it")
	write(secret, approvalSecret+"\n", 0o400)
	looks("no answer", "answer refused (file one): it is no answer")
	ask := a.desk.Ask(1, "a.example.com", time.Minute, time.Now(), time.Now().Add(time.Hour))
	write(filepath.Join(dir, "two"), signAnswer(ask, "allow", 60, time.Now(), time.Now().Add(time.Minute))+"\n", 0o644)
	looks("an answer to nothing", "answer refused (file two): no such request waits")
	write(filepath.Join(dir, "three"), strings.Repeat("x", 1<<20), 0o644)
	looks("a huge one", "answer refused (file three): it is too long")
	write(filepath.Join(dir, "two"), "something else", 0o666)
	looks("one that anybody may write", "writable by everyone")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	looks("a directory that anybody may write into", "writable by everyone")
}
