package inspect

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// Since is the time that --since means: 10m, 1d, start, RFC 3339, or "" for the beginning.
func Since(s string, started, now time.Time) (time.Time, error) {
	switch s {
	case "":
		return time.Time{}, nil
	case "start":
		return started, nil
	}
	if d, err := text.ParseTime(s); err == nil {
		return now.Add(-d), nil
	}
	if t, err := text.ParseMoment(s, now); err == nil {
		return t, nil
	}
	return time.Time{}, fault.New(fault.Usage, "give a time such as 10m, 1d, start, 09:30, 2026-01-31, or \"2026-01-31 09:30\"", "--since %s is not a time", s)
}

// LogOptions choose what of the log is shown.
type LogOptions struct {
	Since  string // in words: 10m, 1d, start, or a date; "" is all
	Last   int64  // lines of the past; 0 is all, or none to follow without Since
	Follow bool
	Denied bool // nothing else
	All    bool // the self-test's as well
	JSON   bool
	Colour bool
}

// Log shows events of the log on out, until there are no more, or the process is told to end.
func Log(ctx context.Context, out io.Writer, o LogOptions) error {
	var s state.State
	_ = state.Published(state.StatusFile, &s) // else the log is where it usually is
	file, started := auditOf(&s)
	since, err := Since(o.Since, started, time.Now())
	if err != nil {
		return err
	}
	return showLog(ctx, out, logView{file: file, since: since, LogOptions: o})
}

type logView struct {
	LogOptions
	file  string
	since time.Time
}

func (v logView) wants(e audit.Event) bool {
	return !e.Time.Before(v.since) && (!v.Denied || Denied(e)) && (v.All || e.Asker != audit.BySelfTest)
}

// past calls show with the lines that are there, and returns the number of the last.
func (v logView) past(show func(line []byte, e audit.Event) bool) (seq uint64, err error) {
	var tail [][]byte
	err = audit.Lines(v.file, func(line []byte) bool {
		e, err := audit.Decode(line)
		if err != nil || !v.wants(e) {
			return true
		}
		seq = e.Seq
		if v.Last == 0 {
			return v.Follow && v.Since == "" || show(line, e)
		}
		tail = append(tail, bytes.Clone(line))
		tail = tail[max(0, len(tail)-int(v.Last)):]
		return true
	})
	for _, line := range tail {
		if e, unread := audit.Decode(line); err != nil || unread != nil || !show(line, e) {
			break
		}
	}
	return seq, err
}

func showLog(ctx context.Context, out io.Writer, v logView) error {
	w := &text.Screen{W: text.Folded(out, strings.Repeat(" ", 10))}
	wide := whatWidth(text.WidthOf(w.W))
	if !v.JSON {
		logHead(w)
	}
	show := func(line []byte, event audit.Event) bool {
		switch {
		case !v.JSON:
			w.Line("%s", eventLine(event, time.Now(), wide, v.Colour))
		case w.Err == nil:
			_, w.Err = out.Write(line)
		}
		return w.Err == nil
	}
	// What is added while the past is read must not be missed: following starts
	// first, and lines that were shown are left out.
	lines := make(chan []byte, 4096)
	followed := make(chan error, 1)
	if v.Follow {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		begun := make(chan struct{})
		go func() {
			followed <- audit.Follow(ctx, v.file, begun, func(line []byte) {
				select {
				case lines <- bytes.Clone(line):
				case <-ctx.Done():
				}
			})
		}()
		select {
		case <-begun:
		case err := <-followed:
			return LogFault(err)
		}
	}
	last, err := v.past(show)
	if err != nil {
		return LogFault(err)
	}
	for v.Follow && w.Err == nil {
		select {
		case line := <-lines:
			if event, err := audit.Decode(line); err == nil && event.Seq > last && v.wants(event) {
				show(line, event)
			}
		case err := <-followed:
			return LogFault(err)
		case <-ctx.Done():
			return nil
		}
	}
	return w.Err
}

// LogFault says what to do about a log that can't be read.
func LogFault(err error) error {
	switch {
	case err == nil:
		return nil
	case os.IsPermission(err):
		return fault.New(fault.Privilege, "run it as root, or as the agent", "%w", err)
	}
	return fault.New(fault.Failure, "start the container with agent-init run; agent-init status says where the log is", "%w", err)
}

const letOut = "let out"

var verdictColours = map[string]string{string(audit.Allow): "32", string(audit.Deny): "31", string(audit.Fault): "31;1", letOut: "33"}

// logHead writes what the columns are, on a terminal: a file or a pipe has events alone.
func logHead(w *text.Screen) {
	if width := text.WidthOf(w.W); width > 0 {
		w.Line("%-8s  %-7s %-8s %-*s %s", "TIME", "VERDICT", "EVENT", whatWidth(width), "WHAT", "WHY")
	}
}

// whatWidth is how wide the column of names and addresses is on a terminal of that width, or, with 0, in a file.
func whatWidth(terminal int) int {
	if terminal == 0 {
		return 32
	}
	return min(max(terminal/3, 20), 56)
}

// eventLine is an event of the audit log in one line for people.
func eventLine(e audit.Event, now time.Time, wide int, coloured bool) string {
	what, at := text.Clean(e.Name), e.IP
	if at != "" && e.Port != 0 {
		at = fmt.Sprintf("%s %d/%s", e.IP, e.Port, cmp.Or(e.Proto, "tcp"))
	}
	if what != "" && at != "" {
		what += " "
	}
	what += text.Clean(at)
	if e.Kind == audit.Broker {
		what = text.Clean(strings.TrimSpace(cmp.Or(e.Route, e.Name) + " " + e.Method + " " + e.Path))
	}
	verdict := string(e.Verdict)
	if e.Enforce != "" {
		verdict = letOut // what enforce would not have done
	}
	shown := painted(fmt.Sprintf("%-7s", text.Clean(verdict)), verdictColours[verdict], coloured)
	what += strings.Repeat(" ", max(0, wide-text.Columns(what)))
	line := fmt.Sprintf("%s  %s %-8s %s %s", text.Moment(e.Time, now), shown, text.Clean(string(e.Kind)), what, text.Clean(e.Reason))
	line += requestText(e)
	if e.Out > 0 || e.In > 0 {
		line += fmt.Sprintf(": %s out, %d in, %s", text.Counted(e.Out, "byte", "bytes"), e.In, text.Shortly(time.Duration(e.Millis)*time.Millisecond))
	}
	if e.Rule != "" {
		line += " [" + text.Clean(e.Rule) + "]"
	}
	if who := Asked(e); who != "" {
		line += " by " + who
	}
	switch {
	case e.Kind == audit.Guard && strings.HasPrefix(e.Reason, audit.Unwritten):
		line += fmt.Sprintf(" (%d of them)", e.Suppressed)
	case e.Suppressed > 0:
		line += fmt.Sprintf(" (and %d before it)", e.Suppressed)
	}
	return line
}

// requestText is what a request to the broker came to; "" for other events.
func requestText(e audit.Event) string {
	var parts []string
	if e.Status != 0 {
		parts = append(parts, strconv.Itoa(int(e.Status)))
	}
	if e.Model != "" {
		parts = append(parts, text.Clean(e.Model))
	}
	if e.TokensIn > 0 || e.TokensOut > 0 {
		parts = append(parts, fmt.Sprintf("%s in, %d out", text.Counted(e.TokensIn, "token", "tokens"), e.TokensOut))
	}
	if e.Kind != audit.Broker || len(parts) == 0 {
		return ""
	}
	between := ""
	if e.Reason != "" {
		between = ": "
	}
	return between + strings.Join(parts, ", ")
}

// Asked says in words which process an event is of; "" if nothing is known.
func Asked(e audit.Event) string {
	switch {
	case e.Asker == audit.ByGuard:
		return "the guard"
	case e.Asker == audit.BySelfTest:
		return "the self-test"
	case e.Asker == audit.ByBroker:
		return "the broker"
	case e.Asker == audit.ByOutside:
		return "somebody outside"
	case e.Comm != "":
		return fmt.Sprintf("%s (%d)", text.Clean(e.Comm), e.PID)
	case e.PID != 0 && e.UID != nil:
		return fmt.Sprintf("pid %d, uid %d", e.PID, *e.UID)
	case e.PID != 0:
		return fmt.Sprintf("pid %d", e.PID)
	case e.UID != nil:
		return fmt.Sprintf("uid %d", *e.UID)
	}
	return ""
}

// Denied says whether something was refused, or would have been in enforce mode.
func Denied(e audit.Event) bool { return e.Verdict == audit.Deny || e.Enforce == audit.Deny }

// whose knows under which names the agent has met an address. A server often has
// several names, and the kernel, which refuses a packet, knows none of them.
type whose struct {
	names map[netip.Addr][]string
	asked map[string]int // by the agent: when, as a count of questions
	count int
}

func newWhose(leases []lease.Name) *whose {
	w := &whose{names: map[netip.Addr][]string{}, asked: map[string]int{}}
	for _, n := range leases {
		for _, a := range n.Addrs {
			w.is(a.Addr, n.Name)
		}
	}
	return w
}

// maxWhose bounds the addresses, and the names, that are known: below a wildcard, the agent makes as many as it likes.
const maxWhose = 10_000

func (w *whose) is(a netip.Addr, name string) {
	if len(w.names) >= maxWhose && w.names[a] == nil || len(w.names[a]) >= maxWhose {
		return
	}
	if !slices.Contains(w.names[a], name) {
		w.names[a] = append(w.names[a], name)
	}
}

// learn takes in an answer of DNS. What the guard has asked ahead says nothing of what the agent is about to use.
func (w *whose) learn(e audit.Event) {
	if e.Kind != audit.DNS || e.Name == "" {
		return
	}
	if a, err := netip.ParseAddr(e.IP); err == nil {
		w.is(a, e.Name)
	}
	if e.Asker == audit.Agent && (len(w.asked) < maxWhose || w.asked[e.Name] > 0) {
		w.count++
		w.asked[e.Name] = w.count
	}
}

// of is the name at a that the agent asked for last, and the others that it may
// have meant: those that it asked for as well, or all if it asked for none.
func (w *whose) of(a netip.Addr) (name string, others []string) {
	all := slices.SortedFunc(slices.Values(w.names[a]), func(x, y string) int {
		return cmp.Or(cmp.Compare(w.asked[y], w.asked[x]), cmp.Compare(x, y))
	})
	if len(all) == 0 {
		return "", nil
	}
	for _, other := range all[1:] {
		if w.asked[all[0]] == 0 || w.asked[other] > 0 {
			others = append(others, other)
		}
	}
	return all[0], others[:min(len(others), 3)] // for a person
}

// ofProbe says whether an event is a self-test's doing that the log does not say that of: one that was run in a shell
// of the agent's. The guard believes nobody there. For a person who reads, it is told well enough by what the published
// plan tries, and by no other program being seen to do it.
type ofProbe func(audit.Event) bool

func probesOf() ofProbe {
	var plan selftest.Plan
	if state.Published(state.ProbesFile, &plan) != nil {
		return nil
	}
	return probesIn(plan)
}

func probesIn(plan selftest.Plan) ofProbe {
	tried := slices.Concat(plan.DNS, plan.TCP, plan.UDP, plan.Metadata)
	for _, a := range plan.Ping {
		tried = append(tried, netip.AddrPortFrom(a, 0))
	}
	return func(e audit.Event) bool {
		a, _ := netip.ParseAddr(e.IP) // what is none was not tried
		return (e.Comm == "" || e.Comm == "agent-init") && (slices.Contains(plan.Denied, e.Name) || slices.Contains(tried, netip.AddrPortFrom(a, e.Port)))
	}
}

// theAgents says whether e is a denial of the agent's own.
func (probe ofProbe) theAgents(e audit.Event) bool {
	return Denied(e) && e.Asker == audit.Agent && (probe == nil || !probe(e))
}
