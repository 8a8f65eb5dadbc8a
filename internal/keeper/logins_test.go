package keeper

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

const (
	oldLogin  = `{"claudeAiOauth":{"accessToken":"old"}}`
	nextLogin = `{"claudeAiOauth":{"accessToken":"next"}}`
)

// loginVault has a login, whose file a link leads to.
func loginVault(t *testing.T) (c *credentials, r route.Route, file string) {
	t.Helper()
	mustrun.Root(t)
	dir := t.TempDir()
	file = filepath.Join(dir, "volume", "claude.json")
	link := filepath.Join(dir, "claude.json")
	put(t, file, oldLogin)
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	c = newCredentials(&base{publisher: &publisher{}, mode: "run"}, hindrance{})
	r = route.Route{Name: "anthropic", To: "https://api.anthropic.com/", Credential: []route.Source{{Login: link}}}
	if why, err := c.look(r); why != "" || err != nil {
		t.Fatalf("%q, %v", why, err)
	}
	return c, r, file
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mark(text string) uint64 { return wire.Mark([]byte(text)) }

// TestKeepLogin: it is written where the link leads, once more if the broker had no answer, and never over a person's.
func TestKeepLogin(t *testing.T) {
	c, r, file := loginVault(t)
	has := func(what, text string, err error, cause string) {
		t.Helper()
		data, _ := os.ReadFile(file)
		if string(data) != text || (err == nil) != (cause == "") || err != nil && !strings.Contains(err.Error(), cause) {
			t.Errorf("%s: the file has %s, and %v", what, data, err)
		}
	}
	has("tried", oldLogin, c.tryKeep(r, mark(oldLogin)), "")
	has("kept", nextLogin, c.keep(r, mark(oldLogin), nextLogin), "")
	has("kept once more", nextLogin, c.keep(r, mark(oldLogin), nextLogin), "")
	if st, err := os.Lstat(r.Credential[0].Login); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", st, err)
	}

	const person = `{"claudeAiOauth":{"accessToken":"person"}}`
	put(t, file, person)
	has("before it was seen", person, c.keep(r, mark(nextLogin), oldLogin), "somebody else")
	if another, _ := c.changed([]route.Route{r}); !another {
		t.Error("a person's file is not seen")
	}
	has("when it was seen", person, c.keep(r, mark(nextLogin), oldLogin), "somebody else")
	has("when it was seen", person, c.tryKeep(r, mark(nextLogin)), "somebody else")

	put(t, file, "")
	has("half written", "", c.keep(r, mark(person), oldLogin), "no login")
	os.Remove(file)
	has("taken away", "", c.keep(r, mark(person), oldLogin), "missing")
}

// TestKeepLoginPace: a broker that was taken over does not have the keeper write without end.
func TestKeepLoginPace(t *testing.T) {
	c, _, file := loginVault(t)
	p, err := new(policy.Policy).NextWith(&policy.Bundle{Files: []policy.File{{Name: "policy.yaml", Data: []byte("broker:\n  anthropic: {credential: \"login:" + file + "\"}\n")}}}, nil,
		func([]policy.PlacedRoute) ([]string, policy.ErrorList) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	k := &brokerKeeper{book: newBook(nil, p), credentials: c}
	if _, err := c.look(p.Settings.Broker[0]); err != nil {
		t.Fatal(err)
	}
	k.keeps.Burst, k.keeps.Every = 2, time.Hour
	try := func() wire.Message {
		return k.keepLogin(wire.Message{Op: wire.OpKeep, Flag: wire.KeepTry, Name: "anthropic", Arg: mark(oldLogin)}, wire.Message{})
	}
	for range 2 {
		if reply := try(); reply.Err {
			t.Errorf("refused: %s", reply.Text)
		}
	}
	if reply := try(); !reply.Err || !strings.Contains(reply.Text, "too many") {
		t.Errorf("the answer is %+v", reply)
	}
}

// TestOneLoginEach: two routes that refreshed the same login would make each other's tokens void.
func TestOneLoginEach(t *testing.T) {
	c, r, _ := loginVault(t)
	other := r
	other.Name = "work"
	_, wrong := c.absent([]policy.PlacedRoute{{Route: r}, {Route: other}})
	if len(wrong) != 1 || wrong[0].Text != "work" || !strings.Contains(wrong.Error(), "the route anthropic has the same login") {
		t.Errorf("wrong is %v", wrong)
	}
	if _, wrong := c.absent([]policy.PlacedRoute{{Route: r}}); len(wrong) > 0 {
		t.Errorf("alone: %v", wrong)
	}
}
