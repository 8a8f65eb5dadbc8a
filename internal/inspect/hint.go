package inspect

import (
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Hint is what a shell wants to be told about when a command has ended.
type Hint struct {
	Since   time.Time // when the command began
	Beyond  int       // the shell: what it has started has higher numbers than its own
	Failed  bool      // else only what fetchers were refused
	Fetches bool      // one of them is named in the command
}

// ReadHint reads four words: when a command began, the shell that has run it, what it has exited with, and what it is
// about. The point of bash's EPOCHREALTIME is that of the locale.
func ReadHint(args []string) (h Hint, err error) {
	whole, fraction, _ := strings.Cut(strings.Replace(args[0], ",", ".", 1), ".")
	seconds, err := strconv.ParseUint(whole, 10, 40)
	if err != nil {
		return h, err
	}
	micros, err := strconv.ParseUint((fraction + "000000")[:6], 10, 32)
	if err != nil {
		return h, err
	}
	h.Since = time.Unix(int64(seconds), int64(micros)*int64(time.Microsecond))
	h.Beyond, err = strconv.Atoi(args[1])
	h.Failed, h.Fetches = args[2] != "0", args[3] == "fetches"
	return h, err
}

const (
	hintTail  = 128 << 10 // the end of the log, which is all that is read of it
	hintLines = 3         // at once
	hintWait  = 40 * time.Millisecond
	hintAgain = 5 * time.Millisecond
)

// fetchers are programs that do nothing but fetch, by how their names begin. Where a command went well, nobody has to
// hear what others were refused, such as telemetry.
var fetchers = []string{"curl", "wget", "git", "npm", "pip", "cargo", "apt", "http"} // apt runs one called http

// Tell says in a line each what the policy has refused, and how to ask a person for it. The program that was refused
// knows only that a name did not resolve, or that a connection was reset. Where nothing is refused, and where
// agent-init does not run, nothing is said.
func (h Hint) Tell(out io.Writer) error {
	var s state.State
	if state.Published(state.StatusFile, &s) != nil {
		return nil
	}
	file, _ := auditOf(&s)
	found := h.refused(file)
	// A refusal is written when its process was looked for, which the refused one does not wait for.
	for end := time.Now().Add(hintWait); (h.Failed || h.Fetches) && len(found) == 0 && time.Now().Before(end); {
		time.Sleep(hintAgain)
		found = h.refused(file)
	}
	if len(found) == 0 {
		return nil
	}
	p, err := readPublished("")
	if err != nil {
		return nil
	}
	return p.hints(out, found)
}

// refused are the denials at the end of a log that h is about, without those that can't be read.
func (h Hint) refused(file string) (found []audit.Event) {
	_ = audit.Tail(file, hintTail, func(line []byte) {
		if e, err := audit.Decode(line); err == nil && h.wants(e) {
			found = append(found, e)
		}
	})
	return found
}

// wants says whether e was refused to what the shell has started. Of some, the log can't say whose they are.
func (h Hint) wants(e audit.Event) bool {
	uid := uint32(os.Getuid())
	fetches := slices.ContainsFunc(fetchers, func(name string) bool { return strings.HasPrefix(e.Comm, name) })
	switch {
	case e.Verdict != audit.Deny, e.Asker != audit.Agent, e.Time.Before(h.Since):
		return false
	case !slices.Contains([]audit.Kind{audit.DNS, audit.Connect, audit.HTTP, audit.Drop}, e.Kind): // the broker's answers say it
		return false
	case e.UID != nil && *e.UID != uid, e.PID != 0 && e.PID <= h.Beyond:
		return false
	}
	return h.Failed || fetches || h.Fetches && e.Comm == ""
}

// hints writes a line for each name or address of denials, up to a few.
func (p published) hints(out io.Writer, denials []audit.Event) error {
	w := &text.Screen{W: out}
	told, more := map[string]bool{}, 0
	for _, e := range denials {
		s, port, ok := subjectOf(e)
		if !ok || told[s.String()] {
			continue
		}
		if told[s.String()] = true; len(told) > hintLines {
			more++
			continue
		}
		w.Line("agent-init: the policy refused %s: %s. %s", s, text.Clean(e.Reason), p.wayTo(e, s, port))
	}
	if more > 0 {
		w.Line("agent-init: the policy refused %s: agent-init log --denied -n %d", text.Counted(more, "other", "others"), more+hintLines)
	}
	return w.Err
}

// subjectOf is what was refused. The agent chooses names: one that can't be asked for is none.
func subjectOf(e audit.Event) (s subject, port policy.Port, ok bool) {
	port = policy.Port{Proto: policy.TCP, Number: e.Port}
	if e.Kind == audit.Drop && e.Proto == "udp" {
		port.Proto = policy.UDP
	}
	if port.Number == 0 {
		port = policy.HTTPS
	}
	if e.Name == "" {
		a, err := netip.ParseAddr(e.IP)
		return subject{addr: a, port: port}, port, err == nil
	}
	s, err := parseSubject(e.Name)
	return s, port, err == nil && !s.here
}

// wayTo says what to do about a refusal: what came of the request that there was, and the request that can be made.
func (p published) wayTo(e audit.Event, s subject, port policy.Port) string {
	line := ""
	switch {
	case s.addr.IsValid():
		line = p.policy.LineForAddr(s.addr, port)
	case e.Kind == audit.DNS:
		line = p.policy.LineToResolve(s.name)
	default:
		line = p.policy.LineFor(s.name, netip.Addr{}, port)
	}
	if line == "" { // a rule denies it, or it is allowed by now
		return "Why: agent-init explain " + s.String()
	}
	before := ""
	switch r := requestAbout(p.grants, s); {
	case r == nil:
	case r.Outcome == "":
		return "Trying again does not help. A person has been asked, and has not decided: agent-init grants"
	default:
		before = "A person has decided before: " + r.Standing() + ". "
	}
	return "Trying again does not help. " + before + "To ask a person: agent-init request " + quoted(line) + " --reason TEXT --wait 10m"
}
