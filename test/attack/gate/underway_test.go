package gate

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// held counts the bytes that have come to the far side, by the host and what was asked for.
type held struct {
	mu  sync.Mutex
	got map[string]int
}

func (h *held) add(key string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got[key] += n
}

func (h *held) at(key string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.got[key]
}

// take counts what comes.
func (h *held) take(key string, from io.Reader) {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		if h.add(key, n); err != nil {
			return
		}
	}
}

// ServeHTTP takes what a client sends, or else says something again and again.
func (h *held) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == "POST" {
		h.take(r.Host+r.URL.Path, r.Body)
		return
	}
	say := func() error {
		_, err := io.WriteString(w, "tick\n")
		return errors.Join(err, http.NewResponseController(w).Flush())
	}
	if r.Header.Get("Upgrade") != "" {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n")
		say = func() error { _, err := io.WriteString(conn, "\x81\x05tick\n"); return err }
	}
	for tick := time.Tick(50 * time.Millisecond); say() == nil; {
		select {
		case <-tick:
		case <-r.Context().Done():
			return
		}
	}
}

// sends is what a script sends: something at once, and from when it is to go on, more and more.
const sends = `sends() { printf first; until [ -e /tmp/go ]; do sleep 0.1; done; while printf more; do sleep 0.1; done; }; `

// underWay are the flows of the table in docs/architecture.md, by its first column: what of the far side shows one, and
// how the agent begins it.
var underWay = map[string]struct{ key, script string }{
	"a connection to a `direct` name":  {"direct", `exec 3<>/dev/tcp/direct.test/9443; sends >&3`},
	"a connection through the gate":    {"gated.test/up", `sends | curl -sS -T - -X POST --cacert ` + rig.Bundle + ` https://gated.test/up`},
	"an upload to an inspected name":   {"insp.test/up", `sends | curl -sS -T - -X POST --cacert TRUST https://insp.test/up`},
	"a WebSocket of an inspected name": {"", `curl -sSN --http1.1 --cacert TRUST -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Key: eA==' -H 'Sec-WebSocket-Version: 13' https://insp.test/ws`},
	"an answer of a route":             {"", `curl -sSN -H "X-Api-Key: $OWN_KEY" "$OWN_URL/v1/x"`},
	"a push": {"github.com/org/one.git/git-receive-pack", `line="$(printf '%040d' 0) $(printf 'a%.0s' $(seq 40)) refs/heads/agent/x"; ` +
		`(printf '%04x%s0000' $((${#line} + 4)) "$line"; head -c 100000 /dev/zero; sends) | curl -sS -T - -X POST -H "X-Api-Key: $OWN_KEY" ` +
		`-H 'Content-Type: application/x-git-receive-pack-request' "${OWN_URL%own}github/org/one.git/git-receive-pack"`},
}

const (
	underWayList = "ok.test\ndirect.test:9443 direct\ngated.test\ninsp.test POST /up\ninsp.test GET /ws websocket\n"
	underWayOwn  = "  own: {to: \"https://own.test/\", credential: file:/run/secrets/own, inject: {header: X-Api-Key}, allow: [GET %s], env: {OWN_URL: \"{base}\", OWN_KEY: \"{token}\"}}\n"
	underWayHub  = "  github: {credential: file:/run/secrets/own, git: write, repos: [%s], branches: [%s]}\n"
	underWayKept = "broker:\n  kept: {to: \"https://kept.test/\", credential: file:/run/secrets/own, inject: {header: X-Api-Key}, allow: [GET /v1/**]}\n"
)

func underWayPolicy(paths, repos, branches string) string {
	return underWayKept + fmt.Sprintf(underWayOwn, paths) + fmt.Sprintf(underWayHub, repos, branches)
}

// underWayChanges are the other columns.
var underWayChanges = map[string]struct{ list, policy string }{
	"another entry changes": {underWayList + "other.test\n", underWayPolicy("/v1/**", "org/*", "agent/*")},
	"its own is narrowed": {"ok.test\ndirect.test:9444 direct\ngated.test:8443\ninsp.test POST /other\ninsp.test GET /ws\n",
		underWayPolicy("/v2/**", "org/*", "main")},
	"its own is taken out": {"ok.test\n", underWayKept},
	"another phase":        {},
}

// tableOfUnderWay reads the table behind a heading of the docs: what becomes of each flow, by change.
func tableOfUnderWay(t *testing.T) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/architecture.md")
	rig.Must(t, err)
	_, rest, ok := strings.Cut(string(text), "| under way \\ change |")
	if !ok {
		t.Fatal("docs/architecture.md has no such table")
	}
	cells := func(line string) (out []string) {
		for _, c := range strings.Split(strings.Trim(line, "| "), "|") {
			out = append(out, strings.TrimSpace(c))
		}
		return out
	}
	lines := strings.Split(rest, "\n")
	changes, table := cells(lines[0]), map[string]map[string]string{}
	for _, line := range lines[2:] {
		row := cells(line)
		if len(row) != len(changes)+1 {
			break
		}
		table[row[0]] = map[string]string{}
		for i, c := range changes {
			table[row[0]][c] = row[i+1]
		}
	}
	return table
}

// TestFlowsUnderWayEndAsDocumented: the table of docs/architecture.md says what becomes of each flow by each change,
// and so it is: each is begun, the change made, and looked at from the far side.
func TestFlowsUnderWayEndAsDocumented(t *testing.T) {
	table := tableOfUnderWay(t)
	if len(table) != len(underWay) {
		t.Errorf("the table has %d flows, and %d are known here", len(table), len(underWay))
	}
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	h := &held{got: map[string]int{}}
	for i, host := range []string{"gated.test", "insp.test", "own.test", "github.com", "kept.test"} {
		l.DNS.SetAddrs(host, fmt.Sprintf("45.30.61.%d", i+1))
		l.Web.Handle(host, h)
	}
	l.DNS.SetAddrs("direct.test", "45.30.61.9")
	l.Claim("tcp", 9443)
	far, err := l.Internet.Listen("tcp4", "45.30.61.9:9443")
	rig.Must(t, err)
	defer far.Close()
	go func() {
		for {
			c, err := far.Accept()
			if err != nil {
				return
			}
			go h.take("direct", c)
		}
	}()
	policy := underWayPolicy("/v1/**", "org/*", "agent/*")
	w := rig.ConfineIn(t, l, underWayList, lab.BoxOptions{Files: []lab.File{
		{Path: "/etc/agent-init/policy.yaml", Data: []byte(policy)}, {Path: rig.Bundle, Data: l.CA.PEM},
		{Path: "/run/secrets/own", Data: []byte(rig.GitKey), Mode: 0o400},
		{Path: "/etc/agent-init/phases/verify/more.yaml", Data: []byte("domains: [ok2.test]\n")},
	}})
	put := func(list, policy string) {
		t.Helper()
		rig.Must(t, w.Box.WriteFile("/etc/agent-init/policy.yaml", []byte(policy), 0o644))
		if r := w.SetPolicy(list); r.Code != 0 {
			t.Fatalf("reload: %s", r)
		}
	}
	for _, change := range []string{"another entry changes", "its own is narrowed", "its own is taken out", "another phase"} {
		w.Root("rm", "-f", "/tmp/go", "/tmp/end")
		put(underWayList, policy)
		running := map[string]*lab.Process{}
		progress := func(what string) int { // of what the far side hears, or says
			if key := underWay[what].key; key != "" {
				return h.at(key)
			}
			return len(running[what].Stdout())
		}
		begun := map[string]int{}
		for what, f := range underWay {
			begun[what] = h.at(f.key)
			running[what] = w.Launch("bash", "-c", w.Reads()+"set -m; "+sends+"{ "+strings.ReplaceAll(f.script, "TRUST", rig.Trust())+
				"; } & until [ -e /tmp/end ]; do sleep 0.1; done; kill -- -$!")
		}
		for what, f := range underWay {
			if !rig.Eventually(lab.Patience, func() bool { return progress(what) > begun[what] || f.key == "" && progress(what) > 0 }) {
				t.Fatalf("%s does not begin: %s%s\n%s", what, running[what].Stdout(), running[what].Stderr(), w.Agent.Stderr())
			}
		}
		if change == "another phase" {
			w.Phase("verify")
		} else {
			put(underWayChanges[change].list, underWayChanges[change].policy)
		}
		w.Root("touch", "/tmp/go") // what was silent goes on, if it may
		for what := range underWay {
			goesOn := func() bool {
				before := progress(what)
				time.Sleep(time.Second)
				return progress(what) > before
			}
			switch want := table[what][change]; {
			case want != "ends" && want != "goes on":
				t.Errorf("the table says %q of %s, %s", want, what, change)
			case want == "goes on" && !rig.Eventually(lab.Patience, goesOn), want == "ends" && !rig.Eventually(lab.Patience, func() bool { return !goesOn() }):
				t.Errorf("%s, %s: it is not so that it %s: %s%s", what, change, want, running[what].Stdout(), running[what].Stderr())
			}
		}
		w.Root("touch", "/tmp/end")
		for what := range underWay {
			running[what].Wait(0)
		}
	}
}
