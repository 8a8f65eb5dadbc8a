package broker

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// provider gives out logins of which each token to refresh serves once, and answers who has the newest one.
type provider struct {
	mu      sync.Mutex
	n       int             // of the newest login
	used    map[string]bool // tokens to refresh
	reused  []string
	asked   int
	answers chan struct{} // gets one before each answer to a refresh, if it is there
	seen    []string      // what the model was asked by
}

func (p *provider) login(n int, expires time.Time) string {
	return fmt.Sprintf(`{"claudeAiOauth":{"accessToken":"sk-ant-oat01-canary-%d","refreshToken":"sk-ant-ort01-canary-%d","expiresAt":%d,"scopes":["user:inference"],"subscriptionType":"max"}}`,
		n, n, expires.UnixMilli())
}

// refresh is platform.claude.com.
func (p *provider) refresh(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Token string `json:"refresh_token"`
		Grant string `json:"grant_type"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || r.URL.Path != "/v1/oauth/token" || asked.Grant != "refresh_token" {
		http.Error(w, `{"error":"invalid_request"}`, http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.asked++
	if p.used[asked.Token] {
		p.reused = append(p.reused, asked.Token)
		p.mu.Unlock()
		http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		return
	}
	p.used[asked.Token] = true
	p.n++
	n := p.n
	p.mu.Unlock()
	if p.answers != nil {
		p.answers <- struct{}{}
		<-p.answers
	}
	fmt.Fprintf(w, `{"access_token":"sk-ant-oat01-canary-%d","refresh_token":"sk-ant-ort01-canary-%d","expires_in":28800}`, n, n)
}

// ask is api.anthropic.com.
func (p *provider) ask(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, r.Header.Get("Authorization"))
	if want := fmt.Sprintf("Bearer sk-ant-oat01-canary-%d", p.n); r.Header.Get("Authorization") != want || !strings.Contains(r.Header.Get("Anthropic-Beta"), "oauth-2025-04-20") {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"type":"error","error":{"type":"authentication_error","message":"OAuth token has expired"}}`)
		return
	}
	fmt.Fprint(w, `{"type":"message","content":[],"usage":{"input_tokens":1,"output_tokens":1}}`)
}

// logged confines a box whose route has a login that ends at that time.
func logged(t *testing.T, p *provider, expires time.Time) (*rig.Brokered, string) {
	t.Helper()
	lab.Require(t)
	p.used = map[string]bool{}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "claude.json")
	if err := os.WriteFile(file, []byte(p.login(0, expires)), 0o600); err != nil {
		t.Fatal(err)
	}
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("api.anthropic.com", "45.30.50.1", "2a0f:30::50")
	l.DNS.SetAddrs("platform.claude.com", "45.30.50.2", "2a0f:30::51")
	l.Web.Handle("api.anthropic.com", http.HandlerFunc(p.ask))
	l.Web.Handle("platform.claude.com", http.HandlerFunc(p.refresh))
	b := &rig.Brokered{}
	b.World = rig.ConfineIn(t, l, "ok.test\n", lab.BoxOptions{Binds: []lab.Bind{{Source: dir, Target: "/var/lib/agent-init/logins", Writable: true}}, Files: []lab.File{
		{Path: "/etc/agent-init/policy.yaml", Data: []byte("broker: {anthropic: {credential: \"login:/var/lib/agent-init/logins/claude.json\"}}\n")}}})
	b.Base, b.Token = b.Variable("ANTHROPIC_BASE_URL"), b.Variable("ANTHROPIC_AUTH_TOKEN")
	return b, file
}

// answers waits until the model answers by that login.
func answersBy(b *rig.Brokered, p *provider) {
	b.Helper()
	var last lab.Poke
	if !rig.Eventually(lab.Patience, func() bool { last = b.Prompt(b.Ask()...); return last.OK }) {
		b.Fatalf("the model does not answer: %s\nasked by %q\n%s", last, p.seen[max(0, len(p.seen)-3):], b.Agent.Stderr())
	}
}

func holds(b *rig.Brokered, file, text string) {
	b.Helper()
	var data []byte
	var err error
	rig.Eventually(lab.Patience, func() bool { data, err = os.ReadFile(file); return strings.Contains(string(data), text) })
	if err != nil || !strings.Contains(string(data), text) || !strings.Contains(string(data), `"subscriptionType": "max"`) {
		b.Errorf("the file has no %s: %v\n%s", text, err, data)
	}
	if st, err := os.Stat(file); err == nil && st.Mode().Perm() != 0o600 {
		b.Errorf("its mode is %v", st.Mode())
	}
}

// TestLogin: a login that is about to end is refreshed once, and its file has the new tokens. The agent has what
// stands in its place, and no token of it.
func TestLogin(t *testing.T) {
	p := &provider{}
	b, file := logged(t, p, time.Now().Add(time.Minute))
	holds(b, file, "sk-ant-ort01-canary-1")
	answersBy(b, p)
	if p.asked != 1 {
		t.Errorf("it was refreshed %d times", p.asked)
	}
	stands := b.Root("cat", "/run/agent-init/login-anthropic.json") // a sidecar's agent has no such directory
	if !strings.Contains(stands.Stdout, b.Token) || strings.Contains(stands.Stdout, "canary") {
		t.Errorf("in the place of the login stands %s", stands)
	}
	keyless(b)

	// The provider has ended the session: the next token is asked for once, and by the refused one no more.
	p.mu.Lock()
	p.n = 7
	p.mu.Unlock()
	b.Prompt(b.Ask()...)
	holds(b, file, "sk-ant-ort01-canary-8")
	answersBy(b, p)
	if p.asked != 2 || len(p.reused) > 0 {
		t.Errorf("it was refreshed %d times, again by %q", p.asked, p.reused)
	}
}

// TestLoginKilled: the broker is killed between the provider's answer and the keeper's writing. The answer is in the
// journal, and is not asked for again.
func TestLoginKilled(t *testing.T) {
	p := &provider{answers: make(chan struct{})}
	b, file := logged(t, p, time.Now().Add(time.Minute))
	<-p.answers // it was asked to refresh
	keeper := b.Keeper().Host
	if err := syscall.Kill(keeper, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	broker := b.Process()
	p.answers <- struct{}{}
	// Its room was taken before. The length of the answer stands behind the digest of the token.
	if !rig.Eventually(lab.Patience, func() bool {
		journal, err := os.ReadFile(file + ".answer")
		return err == nil && len(journal) > 36 && binary.BigEndian.Uint32(journal[32:]) > 0
	}) {
		t.Fatal("the answer is not in the journal")
	}
	if err := syscall.Kill(broker.Host, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(keeper, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	answersBy(b, p)
	holds(b, file, "sk-ant-ort01-canary-1")
	if p.asked != 1 || len(p.reused) > 0 {
		t.Errorf("it was refreshed %d times, again by %q", p.asked, p.reused)
	}
}
