package rig

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

// World is a confined box and the internet that it is in.
type World struct {
	*testing.T
	Lab   *lab.Lab
	Box   *lab.Box
	Agent *lab.Process // agent-init, as PID 1
	Mode  string       // "up" or "sidecar"; "" is run
	Other *lab.Box     // in sidecar mode the agent's container, which shares the network
	Hand  *hand        // of the agent; nil: it has none
}

// Allowlist is what most attacks are made against: one exact name, one wildcard,
// one address.
const Allowlist = `
ok.test
*.cdn.test
45.30.9.9:8443
`

// Confine starts agent-init with a command that does nothing, in a box with the
// given allowlist, and waits until it has proved itself.
func Confine(t *testing.T, list string, opts lab.BoxOptions) *World {
	t.Helper()
	lab.Require(t)
	return ConfineIn(t, lab.New(t, lab.Options{}), list, opts)
}

// ConfineIn is confine in a lab that was prepared: agent-init resolves the names
// of the list as soon as it starts.
func ConfineIn(t *testing.T, l *lab.Lab, list string, opts lab.BoxOptions) *World {
	t.Helper()
	w := startMode(t, l, list, opts)
	w.Ready()
	w.Box.ForgetPackets()
	w.Lab.DNS.Forget()
	w.Lab.ForgetConns()
	w.Lab.Web.Forget()
	return w
}

// Start runs args as PID 1 of a new box.
func Start(t *testing.T, list string, opts lab.BoxOptions, args ...string) *World {
	t.Helper()
	lab.Require(t)
	return StartIn(t, lab.New(t, lab.Options{}), list, opts, args...)
}

func StartIn(t *testing.T, l *lab.Lab, list string, opts lab.BoxOptions, args ...string) *World {
	t.Helper()
	opts.Binary = lab.Binary(t)
	opts = WithBackend(opts)
	opts.Files = append([]lab.File{{Path: "/etc/agent-init/allowlist.txt", Data: []byte(list)}}, opts.Files...)
	w := &World{T: t, Lab: l, Box: l.NewBox(opts), Hand: &hand{}}
	w.Agent = w.Box.Start(lab.Cmd{Args: args})
	return w
}

func (w *World) Ready() {
	w.Helper()
	if r := w.Root("agent-init", "wait", "--timeout", lab.Patience.String()); r.Code != 0 {
		w.Fatalf("not ready: %s\nagent-init said: %s%s", r, w.Agent.Stdout(), w.Agent.Stderr())
	}
}

// InSession waits until there is a session: what is ready is confined, and its agent starts right after.
func (w *World) InSession() {
	w.Helper()
	w.Ready()
	if !Eventually(lab.Patience, func() bool { return w.Root("agent-init", "sessions").Code == 0 }) {
		w.Fatal("there is no session")
	}
}

// Root runs a command in the box as "docker exec -u root" does. What the agent tries
// after that is tried by a process that began after it.
func (w *World) Root(args ...string) lab.Result {
	w.letGo()
	return w.Box.Exec(lab.Cmd{Args: args})
}

// Poke tries one operation with exactly the agent's credentials: what the agent
// itself could do, its seccomp filter and empty capability sets included. What leaves
// nothing in its process shares one with what is tried next.
func (w *World) Poke(args ...string) lab.Poke {
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
	r := w.Launch(append([]string{"poke"}, args...)...).Wait(0)
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
func (w *World) tell(args []string) (lab.Poke, error) {
	if w.Hand == nil {
		return lab.Poke{}, lab.ErrNotDone
	}
	w.Hand.mu.Lock()
	if w.Hand.poke == nil || w.Hand.poke.Ended() {
		box, cmd := w.inside([]string{"poke"})
		poke, err := box.ExecObedient(cmd)
		if err != nil {
			w.Hand.mu.Unlock()
			return lab.Poke{}, err
		}
		w.Hand.poke = poke
		w.Cleanup(func() { poke.Close() })
	}
	poke := w.Hand.poke
	w.Hand.mu.Unlock()
	return poke.Poke(args...)
}

// letGo ends the hand.
func (w *World) letGo() {
	if w.Hand == nil {
		return
	}
	w.Hand.mu.Lock()
	defer w.Hand.mu.Unlock()
	if w.Hand.poke != nil {
		w.Hand.poke.Close()
		w.Hand.poke = nil
	}
}

// Blocked fails the test if the operation did what its attacker wanted.
func (w *World) Blocked(args ...string) lab.Poke {
	w.Helper()
	p := w.Poke(args...)
	if p.OK {
		w.Errorf("got through: %v: %s", args, p)
	}
	return p
}

// Works fails the test if the operation did not do what an honest program
// wanted.
func (w *World) Works(args ...string) lab.Poke {
	w.Helper()
	p := w.Poke(append([]string{"-patient"}, args...)...)
	if !p.OK {
		w.Errorf("does not work: %v: %s", args, p)
	}
	return p
}

// Sealed fails the test if any packet that the filters select left the box.
func (w *World) Sealed(filters ...lab.Filter) {
	w.Helper()
	if escaped := w.Box.Packets(append([]lab.Filter{lab.Routed}, filters...)...); len(escaped) > 0 {
		w.Errorf("%d packets left the box, the first of them %s", len(escaped), escaped[0])
	}
}

// Unasked fails the test if any query for the names, or below them, reached a
// DNS server.
func (w *World) Unasked(names ...string) {
	w.Helper()
	if q := w.Lab.Queries(names...); len(q) > 0 {
		w.Errorf("%d queries reached a DNS server, the first of them %s %s", len(q), q[0].Name, q[0].Server)
	}
}

// Event is a line of the audit log.
type Event struct {
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

// Audit returns the events that the filter selects, but for those of self-tests.
func (w *World) Audit(want func(Event) bool) []Event {
	w.Helper()
	return w.AuditOf(func(e Event) bool { return e.By != "selftest" && want(e) })
}

// AuditOf returns the events that the filter selects, whoever caused them.
func (w *World) AuditOf(want func(Event) bool) []Event {
	w.Helper()
	data, err := w.Box.ReadFile("/var/log/agent-init/audit.jsonl")
	if err != nil {
		w.Fatalf("audit log: %v", err)
	}
	var out []Event
	for line := range strings.Lines(string(data)) {
		var e Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			w.Fatalf("audit log: %v in %q", err, line)
		}
		if want(e) {
			out = append(out, e)
		}
	}
	return out
}

// Audited waits until the log holds an event that the filter selects: the guard
// and the keeper write it in their own time.
func (w *World) Audited(what string, want func(Event) bool) Event {
	w.Helper()
	var found []Event
	if !Eventually(10*time.Second, func() bool { found = w.Audit(want); return len(found) > 0 }) {
		w.Errorf("not in the audit log: %s", what)
		return Event{}
	}
	return found[0]
}

// SetPolicy changes the allowlist and has it read again.
func (w *World) SetPolicy(list string) lab.Result {
	w.Helper()
	if err := w.Box.WriteFile("/etc/agent-init/allowlist.txt", []byte(list), 0o644); err != nil {
		w.Fatalf("write the allowlist: %v", err)
	}
	return w.Root("agent-init", "reload")
}

// Status is what agent-init says of itself; the exit code is health.
func (w *World) Status() (map[string]any, int) {
	w.Helper()
	r := w.Root("agent-init", "status", "--json")
	var s map[string]any
	if err := json.Unmarshal([]byte(r.Stdout), &s); err != nil {
		w.Fatalf("status: %v\n%s", err, r)
	}
	return s, r.Code
}

// Eventually tries until ok, or until the time is over: limit or lab.Patience, what
// is longer. The time is how long a failure takes, and no measure of anything.
func Eventually(limit time.Duration, ok func() bool) bool {
	for deadline := time.Now().Add(max(limit, lab.Patience)); ; time.Sleep(20 * time.Millisecond) {
		if ok() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// Named returns the addresses that every lab has for a name: IPv4, IPv6.
func Named(name string) (v4, v6 netip.Addr) {
	for _, a := range lab.Names()[name] {
		if a.Is4() {
			v4 = a
		} else {
			v6 = a
		}
	}
	return v4, v6
}

// RefusedAtOnce are the errors of a connection that was refused, not left
// hanging.
func RefusedAtOnce(errno string) bool {
	switch errno {
	case unix.ErrnoName(unix.ECONNREFUSED), unix.ErrnoName(unix.EHOSTUNREACH), unix.ErrnoName(unix.ENETUNREACH), unix.ErrnoName(unix.EACCES), unix.ErrnoName(unix.EPERM):
		return true
	}
	return false
}

func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
