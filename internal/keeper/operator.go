package keeper

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/policy"
)

type doors struct {
	controls *net.UnixListener // for root
	requests *os.File          // the agent's, listened to by the guard
}

// openSockets makes the sockets before there is a guard to serve that of requests.
func (b *base) openSockets(_ context.Context, l loaded) (out listening, err error) {
	open := func(name string, mode os.FileMode) (*net.UnixListener, error) {
		l, err := control.Listen(filepath.Join(string(b.dir), name), mode)
		if err != nil {
			return nil, fault.New(fault.Rules, "mount a tmpfs at /run", "%w", err)
		}
		return l, nil
	}
	out.loaded = l
	if out.doors.controls, err = open(ask.ControlSocket, 0o600); err != nil {
		return out, err
	}
	b.atEnd(out.doors.controls.Close)
	// Everyone may connect; whose request counts is for the guard to see.
	requests, err := open(ask.RequestSocket, 0o666)
	if err != nil {
		return out, err
	}
	if out.doors.requests, err = lend(requests); err != nil {
		return out, fault.New(fault.Rules, "run it again with --log-level debug", "keep the socket for requests: %w", err)
	}
	return out, requests.Close()
}

// operate serves people, and does what they have asked for when its time comes,
// until ctx ends. The leases are published up to that count of changes.
func (k *keeper) operate(ctx context.Context, published uint64, answers *approvals) {
	go func() {
		s := control.Server{May: func(uid uint32) bool { return uid == 0 }, Handle: k.serveControl, Log: k.log}
		if err := s.Serve(ctx, k.doors.controls); err != nil {
			k.log.Error("grants can no longer be made", "error", err)
		}
	}()
	tick, again := time.Tick(time.Second), time.Tick(state.AttestEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			k.expireGrants(ctx)
			published = k.publishLeasesInTurn(published)
			k.watchFiles(ctx)
			k.broker.watch()
			answers.look(ctx)
		case <-again:
			if k.owed.Swap(false) { // a disk that was full may have room now
				k.publishAll()
			}
			if k.book.unadopted.Load() { // so may the kernel
				_ = k.reload(ctx) // its error is in the log and the status
			}
			k.payCuts(ctx)
		}
	}
}

// publishAll writes what explain, suggest, grants and the agent read, for the first time or because it could not be
// written, and returns how many changes of the leases that holds.
func (k *keeper) publishAll() uint64 {
	k.book.changing.Lock()
	defer k.book.changing.Unlock()
	k.publishPolicy()
	k.publishGrants(k.book.now().grants)
	return k.publishLeases(^uint64(0))
}

func (k *keeper) serveControl(ctx context.Context, p control.Peer, r control.Request) control.Reply {
	if !k.ready() {
		return ask.Refuse(fault.Failure, "wait until agent-init wait succeeds", "the container is not confined yet")
	}
	// What was begun is carried through, also if the person has left.
	ctx = context.WithoutCancel(ctx)
	switch r.Verb {
	case ask.Allow, ask.Deny:
		return k.put(ctx, grant.Kind(r.Verb), p, r)
	case ask.End:
		return k.end(ctx, p, r)
	case ask.SelfTest:
		return k.proveAgain(ctx, p)
	case ask.Phase:
		return k.askPhase(ctx, p, r)
	case ask.Reload:
		if err := k.reload(ctx); err != nil {
			reply := ask.RefuseWith(err) // which has its own remedy
			reply.Error = "the policy was not reloaded, the old one stays in force: " + reply.Error
			return reply
		}
		return control.Reply{OK: true}
	}
	return ask.Refuse(fault.Usage, "use the agent-init command of the same version", "unknown verb %q", r.Verb)
}

func (k *keeper) put(ctx context.Context, kind grant.Kind, p control.Peer, r control.Request) control.Reply {
	line, err := grant.ParseLine(kind, r.Target)
	if err != nil {
		return ask.RefuseWith(err)
	}
	life := time.Duration(max(0, r.Seconds)) * time.Second
	switch {
	case r.Save && k.config.SavedFile == "":
		return ask.Refuse(fault.Usage, "use --for start", "nothing can be saved here")
	case kind == grant.Allow && r.Seconds == 0 && !r.Save:
		life = grant.DefaultFor
	case life > grant.MaxFor:
		return ask.Refuse(fault.Usage, "use --for start, which ends with agent-init, or --save, which is for good", "a grant lasts %s at most", text.Shortly(grant.MaxFor))
	}
	out := grant.Granted{Version: 1, Replaced: []grant.Grant{}, Warnings: []string{}}
	put := func(save bool) error {
		return k.changeGrants(ctx, func(b *grant.Book) ([]audit.Event, error) {
			asked := grant.Grant{Number: r.Number, Kind: kind, Target: line.Text, Reason: r.Reason, UID: p.UID, PID: p.PID, Seat: p.Terminal, Saved: save}
			g, replaced, err := k.enter(b, asked, life)
			if err != nil {
				return nil, err
			}
			out.Grant, out.Replaced = g, append(out.Replaced, replaced...)
			what, verdict := "denied ", audit.Deny
			if kind == grant.Allow {
				what, verdict = "allowed ", audit.Allow
			}
			return []audit.Event{g.Event(verdict, what+g.Until(g.Made), &p)}, nil
		})
	}
	err = put(r.Save)
	if failed := fault.Of(err, "save it"); errors.Is(err, errNotSaved) {
		if err = fault.New(failed.Code, failed.Remedy+"; or leave it to this start: --for start", "%w", err); kind == grant.Deny && put(false) == nil {
			// better until agent-init ends than not at all
			err = fault.New(failed.Code, failed.Remedy, "%s is denied until agent-init ends: %w", line.Text, err)
		}
	}
	if err != nil {
		return ask.RefuseWith(err)
	}
	out.Warnings = append(out.Warnings, k.warningsOf(out.Grant, line)...)
	return ask.Answer(out)
}

// enter books what a person grants or denies, wherever they are.
func (k *keeper) enter(b *grant.Book, asked grant.Grant, life time.Duration) (made grant.Grant, replaced []grant.Grant, err error) {
	if !k.ready() {
		return made, nil, fault.New(fault.Failure, "start it again", "the keeper is ending")
	}
	if k.status().Policy.Phase == policy.Sealed && asked.Kind == grant.Allow {
		return made, nil, fault.New(fault.Failure, "see agent-init status", "all is sealed between two phases")
	}
	if err := cmp.Or(k.book.beside(asked.Target), k.book.above(asked.Target)); err != nil && asked.Kind == grant.Allow {
		return made, nil, err
	}
	if made, replaced, err = b.Put(asked, life, time.Now()); err != nil {
		err = &fault.Fault{Code: fault.Usage, Cause: err, Remedy: "see agent-init grants"}
	}
	return made, replaced, err
}

// warningsOf says what a person should know of g, which is in force now.
func (k *keeper) warningsOf(g grant.Grant, line policy.Line) (out []string) {
	for _, w := range slices.Concat(k.book.policy().Warnings, line.Warnings) {
		if from := w.Source.File; from == "" || from == g.Name() || g.Saved && from == k.config.SavedFile && w.Text == line.Text {
			if text := (policy.Error{Message: w.Message, Text: w.Text}).Error(); !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	if g.Kind == grant.Allow {
		out = append(out, meaningOf(line.Text)...)
	} else if err := k.book.beside(line.Text); err != nil { // a denial is about the agent's own connections
		out = append(out, "still, "+err.Error()+": to end that, take the route out of the policy")
	}
	if g.Saved {
		out = append(out, container.NoVolume(k.config.SavedFile)...)
	}
	return out
}

var meanings = map[string]string{
	"private": "the name may lead to machines of your own network",
	"connect": "the server is a proxy, and what passes through its tunnels is not read",
	"upgrade": "once the server has agreed, what passes is not read",

	"websocket": "what passes through a WebSocket is not read",
	"observe":   "requests that no entry allows pass, and are recorded",
	"direct":    "nothing looks at the name inside: whatever else is at its addresses is reached as well",
}

// meaningOf says what an entry opens beyond a name, for the person who grants it.
func meaningOf(target string) (out []string) {
	host, words, _ := strings.Cut(target, " ")
	for _, w := range strings.Fields(words) {
		if opens := meanings[w]; opens != "" {
			out = append(out, w+": "+opens)
		}
	}
	if strings.Contains(host, "/") && !strings.HasSuffix(host, "/udp") && !strings.HasSuffix(host, "/tcp") || strings.Contains(host, "/") && strings.Count(host, "/") > 1 {
		out = append(out, "a block: each address in it is opened, whatever its name")
	}
	return out
}

func (k *keeper) end(ctx context.Context, p control.Peer, r control.Request) control.Reply {
	var ended grant.Grant
	err := k.changeGrants(ctx, func(b *grant.Book) (_ []audit.Event, err error) {
		by := grant.Decision{Time: time.Now(), UID: p.UID, Reason: r.Reason, Seat: p.Terminal}
		if r.Target != "" {
			ended, err = b.TurnDown(r.Number, r.Target, by)
		} else {
			ended, err = b.End(r.Number, by)
		}
		if err != nil {
			return nil, &fault.Fault{Code: fault.Usage, Cause: err, Remedy: "see agent-init grants"}
		}
		what := "ended by a person"
		if ended.Kind == grant.Request {
			what = "turned down by a person"
		}
		told := ended
		told.Reason = r.Reason // the person's, behind the person's deed
		return []audit.Event{told.Event(audit.Info, what, &p)}, nil
	})
	if err != nil {
		return ask.RefuseWith(err)
	}
	return ask.Answer(grant.Granted{Version: 1, Grant: ended, Replaced: []grant.Grant{}, Warnings: []string{}})
}
