package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/ids"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// The bounds of root's command. The agent chooses when it is run, and much of what it is told.
const (
	errandTime   = 10 * time.Second // that it may take
	errandsWait  = 32               // that have not been run
	errandBurst  = 16               // at once, and from then on
	errandEvery  = 10 * time.Second // one in this time
	errandOutput = 16 << 10         // bytes that are read of it; who writes more is cut off
	errandSays   = 200              // of these, for the log
)

// errands runs root's command when something becomes of a request, once for each: one at a time, as a process with a uid
// of its own and no privilege, which has the network that the policy gives to the agent, and no more. What it leaves
// running is ended with it. To a webhook it has the broker post the same.
type errands struct {
	*base
	book      *book
	approvals *approvals
	broker    *brokerKeeper   // nil: there is none
	taken     func() []uint32 // uids that are somebody's, whether a process runs or not
	pace      budget.Pace
	queue     chan notification
	missed    atomic.Int64  // that there was no room or time for
	busy      chan struct{} // has one while the command runs
	uid       uint32        // the command's; 0 until it is run for the first time
}

// notification is what the command reads on its standard input. The names of its fields in JSON are public.
type notification struct {
	Version   int         `json:"version"`
	Event     string      `json:"event"` // eventRequested or eventDecided
	Text      string      `json:"text"`  // the same in one line
	Request   grant.Grant `json:"request"`
	Waiting   int         `json:"waiting"`            // requests that nobody has decided
	Missed    int64       `json:"missed,omitempty"`   // notifications before this one that were left out
	Approval  *asking     `json:"approval,omitempty"` // what may be answered, see docs/approvals.md
	Container string      `json:"container"`          // its host name
}

func newErrands(k *keeper, a *approvals) *errands {
	e := &errands{base: k.base, book: k.book, approvals: a, broker: k.broker, queue: make(chan notification, errandsWait), busy: make(chan struct{}, 1), pace: budget.Pace{Burst: errandBurst, Every: errandEvery}}
	e.taken = func() []uint32 {
		s := k.status()
		return []uint32{k.agent.identity.UID, s.Guard.UID, s.Broker.UID, s.Session.UID}
	}
	return e
}

// look says at once, and not only when the agent asks for something, that the command can't be run, or that there is no
// key for answers.
func (e *errands) look() {
	if argv := e.book.policy().Settings.Notify.Command; len(argv) > 0 {
		e.failed(context.Background(), check(argv))
	}
	if e.approvals.settings().Secret != "" {
		_, err := e.approvals.key()
		e.approvals.tell("key", err)
	}
}

// check says why a command is not run.
func check(argv []string) error {
	if err := policy.CheckProgram(argv[0]); err != nil {
		return fmt.Errorf("%s is not run: %w", argv[0], err)
	}
	return nil
}

// put has the command and the webhook told, if there are any. It waits for nobody.
func (e *errands) put(n notification) {
	if told := e.book.policy().Settings.Notify; len(told.Command) == 0 && told.Webhook.To == "" {
		return
	}
	if !e.pace.Take(time.Now()) {
		e.miss()
		return
	}
	select {
	case e.queue <- n:
	default:
		e.miss()
	}
}

func (e *errands) miss() {
	if e.missed.Add(1) == 1 { // said again when one got through
		e.guardian(audit.Fault, "notify: too much becomes of requests at once; not all of it is told")
	}
}

// run runs them, until ctx ends.
func (e *errands) run(ctx context.Context) {
	asking := make(chan struct{}, grant.MaxRequests)
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-e.queue:
			n.Missed = e.missed.Swap(0)
			n.Approval = e.approvals.about(n)
			told := e.book.policy().Settings.Notify // which may be another by now
			if len(told.Command) > 0 {
				e.failed(ctx, e.one(ctx, told.Command, n))
			}
			if told.Webhook.To == "" {
				continue
			}
			if n.Approval == nil {
				e.failed(ctx, e.post(ctx, told.Webhook, n))
				continue
			}
			asking <- struct{}{} // which may take the time that a person takes
			go func() {
				defer func() { <-asking }()
				e.failed(ctx, e.post(ctx, told.Webhook, n))
			}()
		}
	}
}

// failed says that somebody was not told, unless that is because the keeper ends.
func (e *errands) failed(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		e.log.Error("notify", "error", err)
		e.guardian(audit.Fault, "notify: "+text.Clean(text.InOneLine(err)))
	}
}

// one runs the command once. Nothing of it is left when it returns.
func (e *errands) one(ctx context.Context, argv []string, n notification) error {
	e.busy <- struct{}{}
	defer func() { <-e.busy }()
	if err := check(argv); err != nil {
		return err
	}
	if err := e.identify(); err != nil {
		return err
	}
	in, err := wire.Memfd("notification", n)
	if err != nil {
		return err
	}
	defer in.Close()
	from, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer from.Close()
	proc, err := e.spawn(argv, in, out)
	out.Close()
	if err != nil {
		return err
	}
	heard := make(chan string, 1)
	go func() { heard <- listen(from) }()
	late := false
	ctx, cancel := context.WithTimeout(ctx, errandTime)
	defer cancel()
	select {
	case <-proc.Done():
	case <-ctx.Done():
		late = true
		stage.Kill(e.log, proc, syscall.SIGKILL)
	}
	if err := endAll(e.uid); err != nil {
		e.log.Debug("ending what the notify command has left", "error", err)
	}
	<-proc.Done()
	_ = from.SetReadDeadline(time.Now().Add(time.Second)) // nobody is left to write; but a file may have been passed on
	said := <-heard
	switch st := proc.Status(); {
	case late:
		return fmt.Errorf("%s was ended after %s%s", argv[0], text.Shortly(errandTime), said)
	case st.Code() != 0:
		return fmt.Errorf("%s: %v%s", argv[0], st, said)
	}
	e.log.Debug("the notify command has run", "said", said)
	return nil
}

// identify finds a uid for the command, which it keeps for as long as nobody else has it: all processes of it are ended.
func (e *errands) identify() (err error) {
	if e.uid != 0 && !slices.Contains(e.taken(), e.uid) {
		if others, err := processesOf(e.uid); err == nil && len(others) == 0 {
			return nil
		}
	}
	e.uid, err = ids.ChooseUID("the notify command", firewall.SocketOwners, e.taken()...)
	return err
}

func (e *errands) spawn(argv []string, in, out *os.File) (*reaper.Process, error) {
	gid, err := ids.OwnGroup(e.uid, e.taken()[0])
	if err != nil {
		return nil, err
	}
	spec := stage.Own("notify", e.uid, gid)
	spec.Argv, spec.Env = argv, []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	spec.ParentPID = parentPID()
	return stage.Spawn(e.reaper, stage.Options{Spec: spec, Stdin: in, Stdout: out, Stderr: out})
}

// listen reads what a command has to say, and no more than it may, and returns the beginning for the log. A command that
// goes on writes to nobody.
func listen(from *os.File) string {
	defer from.Close()
	data, _ := io.ReadAll(io.LimitReader(from, errandOutput))
	said := wire.PlainText(string(data))
	if said == "" {
		return ""
	}
	return ": " + said[:min(len(said), errandSays)]
}

// stop ends the command that runs, and keeps a next one from being run. It waits for a process that can't be ended, but
// not for ever.
func (e *errands) stop(cancel context.CancelFunc) error {
	cancel()
	select {
	case e.busy <- struct{}{}:
		return nil
	case <-time.After(2 * time.Second):
		return errors.New("the notify command does not end")
	}
}
