package broker

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/issuer"
	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/broker/login"
	"github.com/agent-init/agent-init/pkg/route"
)

// loginRig is a broker with one login, its keeper and its provider.
type loginRig struct {
	*process
	roots []byte // PEM

	server *httptest.Server

	mu     sync.Mutex
	refuse func(m wire.Message) string // why the keeper does not keep
	kept   []wire.Message
}

// refuses has the keeper not keep, for what why says; nil has it keep.
func (r *loginRig) refuses(why func(m wire.Message) string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = why
}

// keeps is the keeper's part.
func (r *loginRig) keeps(m wire.Message) (why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = append(r.kept, m)
	if r.refuse == nil {
		return ""
	}
	return r.refuse(m)
}

func (r *loginRig) lastKept() wire.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept[len(r.kept)-1]
}

const claudeLogin = `{"claudeAiOauth":{"accessToken":"sk-ant-oat01-%s","refreshToken":"sk-ant-ort01-canary-%[1]s"}}`

func newLoginRig(t *testing.T, provider http.HandlerFunc) *loginRig {
	t.Helper()
	mustrun.Root(t) // port 443
	at := netip.MustParseAddr("127.81.15.4")
	l, err := net.Listen("tcp", netip.AddrPortFrom(at, 443).String())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(provider)
	server.Listener.Close()
	rig := &loginRig{}
	ca := issuer.New("test authority", nil)
	rig.roots = ca.PEM()
	server.Listener, server.TLS = l, &tls.Config{Certificates: []tls.Certificate{ca.Issue(time.Now().Add(time.Hour), "platform.claude.com")}}
	server.StartTLS()
	rig.server = server
	t.Cleanup(server.Close)

	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := wire.OpenPair(theirs)
	if err != nil {
		t.Fatal(err)
	}
	rig.process = newProcess(stage.BrokerConfig{Token: "drawn", Blind: true}, conn, func(audit.Event) {})
	keeper := wire.Open(ours, wire.MaxSecret)
	t.Cleanup(func() { keeper.Close(); conn.Close() })
	go rig.serveChannel(t.Context())
	go func() {
		for {
			m, _, err := keeper.Receive()
			if err != nil {
				return
			}
			reply := wire.Message{Op: m.Op, ID: m.ID}
			switch m.Op {
			case wire.OpLookup:
				reply.Addrs, reply.TTL = []netip.Addr{at}, time.Minute
			case wire.OpKeep:
				reply.Text = rig.keeps(m)
				reply.Err = reply.Text != ""
			}
			if keeper.Deliver(reply) != nil {
				return
			}
		}
	}()
	rig.hand(t, "old")
	return rig
}

// hand has the broker take a login as it comes from the keeper.
func (r *loginRig) hand(t *testing.T, which string) {
	t.Helper()
	usual, _ := route.Builtin("anthropic")
	r.loading.Lock()
	defer r.loading.Unlock()
	r.load = stage.BrokerLoad{
		Routes: []route.Route{usual}, Roots: r.roots, Logins: []string{usual.Name},
		Credentials: map[string][]byte{usual.Name: fmt.Appendf(nil, claudeLogin, which)},
	}
	if err := r.reload(); err != nil {
		t.Error(err)
	}
}

func (r *loginRig) access() string {
	r.logins.mu.Lock()
	defer r.logins.mu.Unlock()
	return r.logins.held["anthropic"].Access()
}

func grant(w io.Writer) {
	fmt.Fprint(w, `{"access_token":"sk-ant-oat01-next","refresh_token":"sk-ant-ort01-canary-next"}`)
}

// TestRefreshOnlyWhatCanBeKept: a login that the keeper can't write is not asked for, since its tokens would be void.
func TestRefreshOnlyWhatCanBeKept(t *testing.T) {
	asked := 0
	r := newLoginRig(t, func(w http.ResponseWriter, _ *http.Request) { asked++; grant(w) })
	r.refuses(func(wire.Message) string { return "read-only file system" })
	if err := r.logins.refresh(t.Context(), "anthropic"); err == nil || !strings.Contains(err.Error(), "read-only") || asked > 0 {
		t.Errorf("asked %d times, and %v", asked, err)
	}
	r.refuses(nil)
	if err := r.logins.refresh(t.Context(), "anthropic"); err != nil || asked != 1 || r.access() != "sk-ant-oat01-next" {
		t.Errorf("asked %d times, %s, and %v", asked, r.access(), err)
	}
}

// TestRefreshWhileReplaced: a person's file that comes meanwhile stays, and the keeper is told which one was asked for.
func TestRefreshWhileReplaced(t *testing.T) {
	var r *loginRig
	r = newLoginRig(t, func(w http.ResponseWriter, _ *http.Request) { r.hand(t, "person"); grant(w) })
	err := r.logins.refresh(t.Context(), "anthropic")
	if err != nil || r.access() != "sk-ant-oat01-person" || !strings.Contains(string(r.load.Credentials["anthropic"]), "person") {
		t.Errorf("%s, %v", r.access(), err)
	}
	last := r.lastKept()
	if want := wire.Mark(fmt.Appendf(nil, claudeLogin, "old")); last.Arg != want || last.Flag != 0 {
		t.Errorf("kept in the place of %x, want %x", last.Arg, want)
	}
}

// TestRefreshRepeatsNothing: a provider that answers with what is no HTTP has no token in the log or the status.
func TestRefreshRepeatsNothing(t *testing.T) {
	r := newLoginRig(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			fmt.Fprintf(c, "HTTP/1.1 %s\r\n\r\n", body)
			c.Close()
		}
	})
	if err := r.logins.refresh(t.Context(), "anthropic"); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("%v", err)
	}
}

// TestRefreshRarer: who refuses what they have just given is asked ever more rarely.
func TestRefreshRarer(t *testing.T) {
	now := time.Now()
	h := &held{delay: firstDelay}
	l := &logins{held: map[string]*held{"a": h}}
	var waits []time.Duration
	for range 9 {
		h.wait(now)
		waits = append(waits, h.next.Sub(now))
		l.adopt("a", h, nil, 0)
		now = now.Add(h.next.Sub(now))
	}
	if waits[0] != firstDelay || waits[8] != longDelay {
		t.Errorf("it waits %v", waits)
	}
	h.since = now.Add(-calmTime)
	if h.wait(now); h.next.Sub(now) != firstDelay {
		t.Errorf("after a calm time it waits %v", h.next.Sub(now))
	}
}

// TestStandInIsTriedAgain: a keeper that is late once doesn't leave the agent without what stands in for a login.
func TestStandInIsTriedAgain(t *testing.T) {
	r := newLoginRig(t, nil)
	r.refuses(func(wire.Message) string { return "no space left on device" })
	r.logins.tell(t.Context())
	r.refuses(nil)
	r.logins.tell(t.Context())
	r.logins.tell(t.Context())
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.kept) != 2 || !r.logins.held["anthropic"].told {
		t.Errorf("the keeper was told %d times", len(r.kept))
	}
}

// TestJournal: one that is there for another token, or torn, has no answer.
func TestJournal(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "journal")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	j := journal{f}
	asked, other := [32]byte{1}, [32]byte{2}
	if err := j.write(asked, []byte("answer")); err != nil || string(j.read(asked)) != "answer" || j.read(other) != nil {
		t.Errorf("%q, %q, %v", j.read(asked), j.read(other), err)
	}
	if err := f.Truncate(40); err != nil || j.read(asked) != nil {
		t.Errorf("of a torn one: %q, %v", j.read(asked), err)
	}
	if err := j.clear(); err != nil || j.read(asked) != nil {
		t.Errorf("of one that was cleared: %q, %v", j.read(asked), err)
	}
}

// lend gives the rig's login a journal.
func (r *loginRig) lend(t *testing.T) journal {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "journal"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	r.logins.mu.Lock()
	defer r.logins.mu.Unlock()
	r.logins.held["anthropic"].journal = journal{f}
	return journal{f}
}

// TestRefreshThrowsNothingAway: an answer that can't be read stays where it is, is told of, and is not asked for again: the
// token that was shown may be void.
func TestRefreshThrowsNothingAway(t *testing.T) {
	for _, c := range []struct {
		status int
		answer string
	}{
		{200, `{"data":{"access_token":"canary-new"}}`}, {200, `{"access_token":["canary-new"]}`}, {202, `canary-new`}, {200, `{"access_token":"a","refresh_token":7}`},
		{200, `{"access_token":"canary-new"`}, {200, strings.Repeat("canary-new", login.MaxAnswer)},
	} {
		asked := 0
		r := newLoginRig(t, func(w http.ResponseWriter, _ *http.Request) {
			asked++
			w.WriteHeader(c.status)
			io.WriteString(w, c.answer)
		})
		j := r.lend(t)
		shown := r.logins.held["anthropic"].Asked()
		for range 3 {
			err := r.logins.refresh(t.Context(), "anthropic")
			if err == nil || !strings.Contains(err.Error(), ".answer") || strings.Contains(err.Error(), "canary") {
				t.Errorf("%.40s: %v", c.answer, err)
			}
		}
		whole := c.answer[:min(len(c.answer), login.MaxAnswer)]
		if got := string(j.read(shown)); asked != 1 || got != whole || len(r.logins.due(time.Now().Add(time.Hour))) > 0 {
			t.Errorf("%.40s: asked %d times, and kept %.80q", c.answer, asked, got)
		}
		r.server.Close()
	}
}

// TestRefreshBrokenOff: an answer whose connection breaks behind the tokens is one.
func TestRefreshBrokenOff(t *testing.T) {
	r := newLoginRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "4000")
		grant(w)
	})
	if err := r.logins.refresh(t.Context(), "anthropic"); err != nil || r.access() != "sk-ant-oat01-next" {
		t.Errorf("%s, %v", r.access(), err)
	}
}

// TestRefreshHeldUntilKept: a disk that is full when the answer has come doesn't have the old token shown again.
func TestRefreshHeldUntilKept(t *testing.T) {
	asked := 0
	r := newLoginRig(t, func(w http.ResponseWriter, _ *http.Request) { asked++; grant(w) })
	r.refuses(func(m wire.Message) string {
		if m.Flag == wire.KeepTry {
			return ""
		}
		return "no space left on device"
	})
	if err := r.logins.refresh(t.Context(), "anthropic"); err == nil || r.access() != "sk-ant-oat01-old" {
		t.Errorf("%s, %v", r.access(), err)
	}
	r.refuses(nil)
	if len(r.logins.due(time.Now().Add(time.Hour))) != 1 {
		t.Error("it is not tried again")
	}
	if err := r.logins.refresh(t.Context(), "anthropic"); err != nil || asked != 1 || r.access() != "sk-ant-oat01-next" {
		t.Errorf("asked %d times: %s, %v", asked, r.access(), err)
	}
}

// TestRefreshWithoutRoom: no answer is asked for that the journal has no room for.
func TestRefreshWithoutRoom(t *testing.T) {
	asked := 0
	r := newLoginRig(t, func(w http.ResponseWriter, _ *http.Request) { asked++; grant(w) })
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	r.logins.held["anthropic"].journal = journal{full}
	if err := r.logins.refresh(t.Context(), "anthropic"); err == nil || asked > 0 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

// TestRefreshOneAtATime: who shares the volume of a login waits for who refreshes it.
func TestRefreshOneAtATime(t *testing.T) {
	asked := 0
	r := newLoginRig(t, func(w http.ResponseWriter, _ *http.Request) { asked++; grant(w) })
	j := r.lend(t)
	other, err := os.OpenFile(j.f.Name(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	unlock, err := journal{other}.lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.logins.refresh(t.Context(), "anthropic"); err == nil || asked > 0 {
		t.Errorf("asked %d times beside another, %v", asked, err)
	}
	unlock()
	if err := r.logins.refresh(t.Context(), "anthropic"); err != nil || asked != 1 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

// TestLoginOfAnother: who has mixed up two files has no token of one provider sent to the other.
func TestLoginOfAnother(t *testing.T) {
	r := newLoginRig(t, nil)
	chatgpt, _ := route.Builtin("chatgpt")
	_, err := r.logins.take(chatgpt, fmt.Appendf(nil, claudeLogin, "old"), nil, journal{})
	if err == nil || !strings.Contains(err.Error(), "Claude Code") || r.logins.held["chatgpt"] != nil {
		t.Errorf("taken, and %v", err)
	}
}
