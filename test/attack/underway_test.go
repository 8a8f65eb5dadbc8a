package attack

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// held counts what is under way at the far side, by the host and what it is.
type held struct {
	mu   sync.Mutex
	live map[string]int
	got  int // bytes of the direct flow
}

func (h *held) add(key string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.live[key] += n
}

func (h *held) at(key string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live[key]
}

// ServeHTTP holds each request for as long as its client lets it.
func (h *held) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Host + r.URL.Path
	if r.Method == "POST" {
		if _, err := io.ReadFull(r.Body, make([]byte, 4)); err != nil {
			return
		}
		h.add(key, 1)
		defer h.add(key, -1)
		io.Copy(io.Discard, r.Body)
		return
	}
	c := http.NewResponseController(w)
	if r.Header.Get("Upgrade") == "" {
		c.Flush()
		h.add(key, 1)
		defer h.add(key, -1)
		<-r.Context().Done()
		return
	}
	conn, _, err := c.Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n")
	h.add(key, 1)
	defer h.add(key, -1)
	io.Copy(io.Discard, conn)
}

// underWay are the flows of the table in docs/architecture.md, by its first column: what of the far side shows one, and
// how the agent begins it.
var underWay = map[string]struct{ key, script string }{
	"a connection to a `direct` name": {"direct", `exec 3<>/dev/tcp/direct.test/9443; echo first >&3; until [ -e /tmp/go ]; do sleep 0.1; done; while echo more >&3; do sleep 0.1; done`},
	"a connection through the gate":   {"gated.test/up", `(printf first; sleep 600) | curl -sS -T - -X POST --cacert ` + bundle + ` https://gated.test/up`},
	"an upload to an inspected name":  {"insp.test/up", `(printf first; sleep 600) | curl -sS -T - -X POST --cacert TRUST https://insp.test/up`},
	"a WebSocket of an inspected name": {"insp.test/ws", `curl -sSN --http1.1 --cacert TRUST -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Key: eA==' ` +
		`-H 'Sec-WebSocket-Version: 13' https://insp.test/ws`},
	"an answer of a route": {"own.test/v1/x", `curl -sSN -H "X-Api-Key: $OWN_KEY" "$OWN_URL/v1/x"`},
	"a push": {"github.com/org/one.git/git-receive-pack", `line="$(printf '%040d' 0) $(printf 'a%.0s' $(seq 40)) refs/heads/agent/x"; ` +
		`(printf '%04x%s0000' $((${#line} + 4)) "$line"; head -c 100000 /dev/zero; sleep 600) | curl -sS -T - -X POST -H "X-Api-Key: $OWN_KEY" ` +
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
	text, err := os.ReadFile("../../docs/architecture.md")
	must(t, err)
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

// TestLabUnderWay: the table of docs/architecture.md says what becomes of each flow by each change, and so it is: each is
// begun, the change made, and looked at from the far side.
func TestLabUnderWay(t *testing.T) {
	table := tableOfUnderWay(t)
	if len(table) != len(underWay) {
		t.Errorf("the table has %d flows, and %d are known here", len(table), len(underWay))
	}
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	h := &held{live: map[string]int{}}
	for i, host := range []string{"gated.test", "insp.test", "own.test", "github.com", "kept.test"} {
		l.DNS.SetAddrs(host, fmt.Sprintf("45.30.61.%d", i+1))
		l.Web.Handle(host, h)
	}
	l.DNS.SetAddrs("direct.test", "45.30.61.9")
	l.Claim("tcp", 9443)
	far, err := l.Internet.Listen("tcp4", "45.30.61.9:9443")
	must(t, err)
	defer far.Close()
	go func() {
		for {
			c, err := far.Accept()
			if err != nil {
				return
			}
			go func() {
				h.add("direct", 1)
				defer h.add("direct", -1)
				b := make([]byte, 64)
				for {
					n, err := c.Read(b)
					if h.mu.Lock(); err != nil {
						h.mu.Unlock()
						return
					}
					h.got += n
					h.mu.Unlock()
				}
			}()
		}
	}()
	policy := underWayPolicy("/v1/**", "org/*", "agent/*")
	w := confineIn(t, l, underWayList, lab.BoxOptions{Files: []lab.File{
		{Path: "/etc/agent-init/policy.yaml", Data: []byte(policy)}, {Path: bundle, Data: l.CA.PEM},
		{Path: "/run/secrets/own", Data: []byte(gitKey), Mode: 0o400},
		{Path: "/etc/agent-init/phases/verify/more.yaml", Data: []byte("domains: [ok2.test]\n")},
	}})
	put := func(list, policy string) {
		t.Helper()
		must(t, w.box.WriteFile("/etc/agent-init/policy.yaml", []byte(policy), 0o644))
		if r := w.setPolicy(list); r.Code != 0 {
			t.Fatalf("reload: %s", r)
		}
	}
	arrived := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.got
	}
	for _, change := range []string{"another entry changes", "its own is narrowed", "its own is taken out", "another phase"} {
		w.root("rm", "-f", "/tmp/go", "/tmp/end")
		put(underWayList, policy)
		running := map[string]*lab.Process{}
		for what, f := range underWay {
			running[what] = w.launch("bash", "-c", w.reads()+"set -m; { "+strings.ReplaceAll(f.script, "TRUST", trust())+
				"; } & until [ -e /tmp/end ]; do sleep 0.1; done; kill -- -$!")
		}
		for what, f := range underWay {
			if !eventually(lab.Patience, func() bool { return h.at(f.key) > 0 }) {
				t.Fatalf("%s does not begin: %s%s\n%s", what, running[what].Stdout(), running[what].Stderr(), w.agent.Stderr())
			}
		}
		if change == "another phase" {
			w.phase("verify")
		} else {
			put(underWayChanges[change].list, underWayChanges[change].policy)
		}
		before := arrived()
		w.root("touch", "/tmp/go") // the direct flow, which was silent, sends
		for what, f := range underWay {
			goesOn := func() bool { return h.at(f.key) > 0 }
			if f.key == "direct" {
				goesOn = func() bool { return arrived() > before }
			}
			switch want := table[what][change]; {
			case want == "goes on" && f.key == "direct":
				if !eventually(lab.Patience, goesOn) {
					t.Errorf("%s, %s: nothing more arrives", what, change)
				}
			case want == "goes on":
				if time.Sleep(time.Second); !goesOn() {
					t.Errorf("%s, %s: it ends: %s%s", what, change, running[what].Stdout(), running[what].Stderr())
				}
			case want == "ends" && f.key == "direct":
				if time.Sleep(3 * time.Second); goesOn() {
					t.Errorf("%s, %s: it goes on", what, change)
				}
			case want == "ends":
				if !eventually(lab.Patience, func() bool { return !goesOn() }) {
					t.Errorf("%s, %s: it goes on", what, change)
				}
			default:
				t.Errorf("the table says %q of %s, %s", want, what, change)
			}
		}
		w.root("touch", "/tmp/end")
		for what, f := range underWay {
			if running[what].Wait(0); !eventually(lab.Patience, func() bool { return f.key == "direct" || h.at(f.key) == 0 }) {
				t.Fatalf("%s does not end at all", what)
			}
		}
	}
}
