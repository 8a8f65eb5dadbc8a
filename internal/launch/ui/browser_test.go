package ui

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab/browser"
)

// inBrowser is a rig, and a person who came in with a browser.
func inBrowser(t *testing.T) (*rig, *browser.Tab) {
	t.Helper()
	browser.Enter(t)
	r := newRig(t)
	return r, browser.Start(t, "attacker.example").Tab()
}

// calm is a page in which nothing went wrong, and which asked nobody else.
func (r *rig) calm(tab *browser.Tab) {
	r.t.Helper()
	if trouble := tab.Trouble(); len(trouble) > 0 {
		r.t.Errorf("the page had trouble: %q", trouble)
	}
	if asked := tab.Asked(); !slices.Equal(asked, []string{r.server.host}) {
		r.t.Errorf("the page asked %q", asked)
	}
	var pwned bool
	if tab.Eval("'pwned' in globalThis", &pwned); pwned {
		r.t.Error("a container's script ran in the page")
	}
}

// shot keeps a picture for whoever wants to look: AGENT_INIT_SHOTS is a directory.
func shot(t *testing.T, tab *browser.Tab, name string) {
	t.Helper()
	if dir := os.Getenv("AGENT_INIT_SHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), tab.Screenshot(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPeerPageAnswers does in a browser what a person does: opens the address, sees what an agent asks for, and allows
// it.
func TestPeerPageAnswers(t *testing.T) {
	r, tab := inBrowser(t)
	r.asks(one, 7, "registry.example.com", "to install the linter")
	tab.Look(1000, 800, false)
	tab.Go(r.server.Link())
	tab.Until("document.querySelectorAll('#asks li').length === 1 && document.querySelectorAll('#agents .good').length === 2")
	var hash string
	if tab.Eval("location.href", &hash); hash != "http://"+r.server.host+"/" {
		t.Errorf("the address is %s", hash)
	}
	text := tab.Text()
	for _, want := range []string{"registry.example.com", "to install the linter", "agent-one", "agent-two", "pid 77", "uid 1000"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %s:\n%s", want, text)
		}
	}
	shot(t, tab, "wide-light")
	tab.Look(400, 800, true)
	shot(t, tab, "narrow-dark")
	var wide bool
	if tab.Eval("document.documentElement.scrollWidth > innerWidth", &wide); wide {
		t.Error("the page is wider than a phone")
	}
	tab.Until("!document.body.classList.contains('moving')")
	tab.Click("#asks .allow")
	tab.Until("document.querySelector('#said').textContent.includes('warning: it was asked for')")
	if got, want := r.calls(), one+" allow --request 7 --for 10m -- registry.example.com\n"; got != want {
		t.Errorf("the engine was told %q, want %q", got, want)
	}
	r.put(one+".grants", `{"version":1,"grants":[]}`)
	tab.Until("!document.querySelector('#asks li') && document.title === 'agent-init'")
	r.calm(tab)
}

// TestPeerPageStarts: what is typed into the page's form is what the agent may reach, with the commas of a request's
// methods.
func TestPeerPageStarts(t *testing.T) {
	r, tab := inBrowser(t)
	tab.Go(r.server.Link())
	tab.Until("document.querySelector('#start [name=agent]').value === 'claude' && !document.body.classList.contains('moving')")
	typed, err := json.Marshal([]string{t.TempDir(), "a.example, b.example:22\napi.example GET,HEAD /v1/**\n"})
	if err != nil {
		t.Fatal(err)
	}
	var done bool
	tab.Eval("(([dir, allow]) => { const f = document.querySelector('#start').elements; f.dir.value = dir; f.allow.value = allow; return true; })("+string(typed)+")", &done)
	tab.Click("#start button")
	tab.Until("document.querySelector('#said').textContent.includes('has started')")
	if got, want := r.calls(), "AGENT_INIT_ALLOW=a.example\nb.example:22\napi.example GET,HEAD /v1/**"; !strings.Contains(got, want) {
		t.Errorf("the engine was told %q, want %q", got, want)
	}
	r.calm(tab)
}
