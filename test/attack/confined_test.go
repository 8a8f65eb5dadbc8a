// Package attack tries, from inside of a confined container, to get out: one
// test for each attack of the catalogue in SECURITY.md, and tests of what must
// work all the same. The verdict is what arrived on the far side.
package attack

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// world is a confined box and the internet that it is in.
type world struct {
	*testing.T
	lab   *lab.Lab
	box   *lab.Box
	agent *lab.Process // agent-init, as PID 1
	mode  string       // "up" or "sidecar"; "" is run
	other *lab.Box     // in sidecar mode the agent's container, which shares the network
	hand  *hand        // of the agent; nil: it has none
}

// allowlist is what most attacks are made against: one exact name, one wildcard,
// one address.
const allowlist = `
ok.test
*.cdn.test
45.30.9.9:8443
`

// confine starts agent-init with a command that does nothing, in a box with the
// given allowlist, and waits until it has proved itself.
func confine(t *testing.T, list string, opts lab.BoxOptions) *world {
	t.Helper()
	lab.Require(t)
	return confineIn(t, lab.New(t, lab.Options{}), list, opts)
}

// confineIn is confine in a lab that was prepared: agent-init resolves the names
// of the list as soon as it starts.
func confineIn(t *testing.T, l *lab.Lab, list string, opts lab.BoxOptions) *world {
	t.Helper()
	w := startMode(t, l, list, opts)
	w.ready()
	w.box.ForgetPackets()
	w.lab.DNS.Forget()
	w.lab.ForgetConns()
	w.lab.Web.Forget()
	return w
}

// start runs args as PID 1 of a new box.
func start(t *testing.T, list string, opts lab.BoxOptions, args ...string) *world {
	t.Helper()
	lab.Require(t)
	return startIn(t, lab.New(t, lab.Options{}), list, opts, args...)
}

func startIn(t *testing.T, l *lab.Lab, list string, opts lab.BoxOptions, args ...string) *world {
	t.Helper()
	opts.Binary = lab.Binary(t)
	opts = withBackend(opts)
	opts.Files = append([]lab.File{{Path: "/etc/agent-init/allowlist.txt", Data: []byte(list)}}, opts.Files...)
	w := &world{T: t, lab: l, box: l.NewBox(opts), hand: &hand{}}
	w.agent = w.box.Start(lab.Cmd{Args: args})
	return w
}

func (w *world) ready() {
	w.Helper()
	if r := w.root("agent-init", "wait", "--timeout", lab.Patience.String()); r.Code != 0 {
		w.Fatalf("not ready: %s\nagent-init said: %s%s", r, w.agent.Stdout(), w.agent.Stderr())
	}
}

// inSession waits until there is a session: what is ready is confined, and its agent starts right after.
func (w *world) inSession() {
	w.Helper()
	w.ready()
	if !eventually(lab.Patience, func() bool { return w.root("agent-init", "sessions").Code == 0 }) {
		w.Fatal("there is no session")
	}
}

// root runs a command in the box as "docker exec -u root" does. What the agent tries
// after that is tried by a process that began after it.
func (w *world) root(args ...string) lab.Result {
	w.letGo()
	return w.box.Exec(lab.Cmd{Args: args})
}

// poke tries one operation with exactly the agent's credentials: what the agent
// itself could do, its seccomp filter and empty capability sets included. What leaves
// nothing in its process shares one with what is tried next.
func (w *world) poke(args ...string) lab.Poke {
	w.Helper()
	op := args[0]
	if op == "-patient" {
		op = args[1]
	}
	if slices.Contains([]string{"tcp", "udp", "socket", "resolve", "dns", "http"}, op) {
		p, err := w.tell(args)
		if err == nil {
			return p
		}
		if !errors.Is(err, lab.ErrNotDone) {
			w.Fatalf("poke %v: %v", args, err)
		}
	}
	r := w.launch(append([]string{"poke"}, args...)...).Wait(0)
	p, err := lab.ParsePoke(r.Stdout)
	if err != nil {
		w.Fatalf("poke %v: %v\n%s", args, err, r)
	}
	return p
}

// hand is the agent's own process that tries one thing after another.
type hand struct {
	mu   sync.Mutex
	poke *lab.Obedient // nil until there is something to try
}

// tell has the hand try something, and makes it if there is none.
func (w *world) tell(args []string) (lab.Poke, error) {
	if w.hand == nil {
		return lab.Poke{}, lab.ErrNotDone
	}
	w.hand.mu.Lock()
	if w.hand.poke == nil || w.hand.poke.Ended() {
		box, cmd := w.inside([]string{"poke"})
		poke, err := box.ExecObedient(cmd)
		if err != nil {
			w.hand.mu.Unlock()
			return lab.Poke{}, err
		}
		w.hand.poke = poke
		w.Cleanup(func() { poke.Close() })
	}
	poke := w.hand.poke
	w.hand.mu.Unlock()
	return poke.Poke(args...)
}

// letGo ends the hand.
func (w *world) letGo() {
	if w.hand == nil {
		return
	}
	w.hand.mu.Lock()
	defer w.hand.mu.Unlock()
	if w.hand.poke != nil {
		w.hand.poke.Close()
		w.hand.poke = nil
	}
}

// blocked fails the test if the operation did what its attacker wanted.
func (w *world) blocked(args ...string) lab.Poke {
	w.Helper()
	p := w.poke(args...)
	if p.OK {
		w.Errorf("got through: %v: %s", args, p)
	}
	return p
}

// works fails the test if the operation did not do what an honest program
// wanted.
func (w *world) works(args ...string) lab.Poke {
	w.Helper()
	p := w.poke(append([]string{"-patient"}, args...)...)
	if !p.OK {
		w.Errorf("does not work: %v: %s", args, p)
	}
	return p
}

// sealed fails the test if any packet that the filters select left the box.
func (w *world) sealed(filters ...lab.Filter) {
	w.Helper()
	if escaped := w.box.Packets(append([]lab.Filter{lab.Routed}, filters...)...); len(escaped) > 0 {
		w.Errorf("%d packets left the box, the first of them %s", len(escaped), escaped[0])
	}
}

// unasked fails the test if any query for the names, or below them, reached a
// DNS server.
func (w *world) unasked(names ...string) {
	w.Helper()
	if q := w.lab.Queries(names...); len(q) > 0 {
		w.Errorf("%d queries reached a DNS server, the first of them %s %s", len(q), q[0].Name, q[0].Server)
	}
}

// event is a line of the audit log.
type event struct {
	Seq        uint64 `json:"seq"`
	Kind       string `json:"event"`
	Verdict    string `json:"verdict"`
	Enforce    string `json:"enforce"`
	Name       string `json:"name"`
	IP         string `json:"ip"`
	Port       uint16 `json:"port"`
	Proto      string `json:"proto"`
	Rule       string `json:"rule"`
	Reason     string `json:"reason"`
	By         string `json:"by"`
	UID        *int64 `json:"uid"`
	PID        int    `json:"pid"`
	Comm       string `json:"comm"`
	Out        int    `json:"bytes_out"`
	In         int    `json:"bytes_in"`
	Suppressed uint64 `json:"suppressed"`
}

// audit returns the events that the filter selects, but for those of self-tests.
func (w *world) audit(want func(event) bool) []event {
	w.Helper()
	return w.auditOf(func(e event) bool { return e.By != "selftest" && want(e) })
}

// auditOf returns the events that the filter selects, whoever caused them.
func (w *world) auditOf(want func(event) bool) []event {
	w.Helper()
	data, err := w.box.ReadFile("/var/log/agent-init/audit.jsonl")
	if err != nil {
		w.Fatalf("audit log: %v", err)
	}
	var out []event
	for line := range strings.Lines(string(data)) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			w.Fatalf("audit log: %v in %q", err, line)
		}
		if want(e) {
			out = append(out, e)
		}
	}
	return out
}

// audited waits until the log holds an event that the filter selects: the guard
// and the keeper write it in their own time.
func (w *world) audited(what string, want func(event) bool) event {
	w.Helper()
	var found []event
	if !eventually(10*time.Second, func() bool { found = w.audit(want); return len(found) > 0 }) {
		w.Errorf("not in the audit log: %s", what)
		return event{}
	}
	return found[0]
}

// setPolicy changes the allowlist and has it read again.
func (w *world) setPolicy(list string) lab.Result {
	w.Helper()
	if err := w.box.WriteFile("/etc/agent-init/allowlist.txt", []byte(list), 0o644); err != nil {
		w.Fatalf("write the allowlist: %v", err)
	}
	return w.root("agent-init", "reload")
}

// status is what agent-init says of itself; the exit code is health.
func (w *world) status() (map[string]any, int) {
	w.Helper()
	r := w.root("agent-init", "status", "--json")
	var s map[string]any
	if err := json.Unmarshal([]byte(r.Stdout), &s); err != nil {
		w.Fatalf("status: %v\n%s", err, r)
	}
	return s, r.Code
}

// eventually tries until ok, or until the time is over: limit or lab.Patience, what
// is longer. The time is how long a failure takes, and no measure of anything.
func eventually(limit time.Duration, ok func() bool) bool {
	for deadline := time.Now().Add(max(limit, lab.Patience)); ; time.Sleep(20 * time.Millisecond) {
		if ok() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// named returns the addresses that every lab has for a name: IPv4, IPv6.
func named(name string) (v4, v6 netip.Addr) {
	for _, a := range lab.Names()[name] {
		if a.Is4() {
			v4 = a
		} else {
			v6 = a
		}
	}
	return v4, v6
}

// refusedAtOnce are the errors of a connection that was refused, not left
// hanging.
func refusedAtOnce(errno string) bool {
	switch errno {
	case unix.ErrnoName(unix.ECONNREFUSED), unix.ErrnoName(unix.EHOSTUNREACH), unix.ErrnoName(unix.ENETUNREACH), unix.ErrnoName(unix.EACCES), unix.ErrnoName(unix.EPERM):
		return true
	}
	return false
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
