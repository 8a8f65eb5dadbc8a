package keeper

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/approval"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// approvals takes what people who are not in the container decide. Who brings an answer, and who could have changed it
// on the way, makes no difference: it is signed, and the keeper alone has the key. What is granted goes through the book
// as a grant of root's does.
type approvals struct {
	*keeper
	desk *approval.Desk

	mu    sync.Mutex
	said  map[string]string // what is wrong with a way, by the way: told once
	known map[string]marks  // the answers that a way showed last
}

// marks tell answers apart that were judged.
type marks map[[sha256.Size]byte]bool

func newApprovals(k *keeper) *approvals {
	host, _ := os.Hostname()
	return &approvals{keeper: k, desk: approval.NewDesk(host), said: map[string]string{}, known: map[string]marks{}}
}

func (a *approvals) settings() policy.Approvals { return a.book.policy().Settings.Approvals }

// key reads the key, which may be another by now.
func (a *approvals) key() (approval.Key, error) {
	file := a.settings().Secret
	secret, err := policy.ReadSecret(file, !a.shared())
	if err != nil {
		return nil, err
	}
	key, err := approval.ParseKey(secret)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return key, nil
}

// asking is what goes out about a request.
type asking struct {
	approval.Ask
	Means []string `json:"means,omitempty"` // what it opens beyond a name
}

// ask is what g asks of somebody far away. It is no wider than the policy was when g was made, nor than it is now.
func (a *approvals) ask(g grant.Grant) asking {
	life := min(time.Duration(g.Longest)*time.Second, time.Duration(a.settings().Most))
	return asking{a.desk.Ask(g.Number, g.Target, life, g.Made, g.Expires), meaningOf(g.Target)}
}

// post puts a request into the diagnostics, which a container's log has, for people who read that.
func (a *approvals) post(g grant.Grant) {
	if a.settings().Secret == "" || g.Longest == 0 {
		return
	}
	key, err := a.key()
	if a.tell("key", err); err == nil {
		a.log.Warn("people elsewhere may answer", "ask", key.Line(a.ask(g).Ask))
	}
}

// about is what n tells somebody who may answer; nil if nobody may.
func (a *approvals) about(n notification) *asking {
	if a.settings().Secret == "" || n.Event != eventRequested || n.Request.Longest == 0 {
		return nil
	}
	asked := a.ask(n.Request)
	return &asked
}

// answer is one line, and where it came from.
type answer struct{ way, line string }

// take judges answers. Those that deny come first, so that of two about one request nothing is opened.
func (a *approvals) take(ctx context.Context, all []answer) error {
	if len(all) == 0 {
		return nil
	}
	if a.settings().Secret == "" {
		return errors.New("nobody is to answer")
	}
	key, err := a.key()
	if err != nil {
		return err
	}
	type read struct {
		approval.Answer
		way string
	}
	var signed []read
	for _, one := range all[:min(len(all), approval.MaxAnswers)] {
		if said, err := key.Read(one.line); err != nil {
			a.refused(one.way, err)
		} else {
			signed = append(signed, read{said, one.way})
		}
	}
	slices.SortStableFunc(signed, func(x, y read) int {
		switch {
		case x.Allow == y.Allow:
			return 0
		case y.Allow:
			return -1
		}
		return 1
	})
	for _, s := range signed {
		if err := a.decide(ctx, s.Answer, s.way); err != nil {
			a.refused(s.way, err)
		}
	}
	return nil
}

func (a *approvals) refused(way string, err error) {
	why := text.Clean(text.InOneLine(err))
	a.log.Warn("an answer from afar was refused", "way", way, "error", why)
	a.record(audit.Event{Kind: audit.Grant, Verdict: audit.Deny, Reason: "answer refused (" + text.Clean(way) + "): " + why})
}

// decide does what somebody has signed, if it is what they were asked.
func (a *approvals) decide(ctx context.Context, said approval.Answer, way string) error {
	return a.changeGrants(ctx, func(b *grant.Book) ([]audit.Event, error) {
		e, err := a.put(b, said, way, time.Now())
		return []audit.Event{e}, err
	})
}

// put books what was signed: for the request that it is about, as long as that waits, and no wider than it was asked.
func (a *approvals) put(b *grant.Book, said approval.Answer, way string, now time.Time) (e audit.Event, err error) {
	var ask *approval.Ask
	if g := b.Waiting(said.Request()); g != nil {
		asked := a.ask(*g)
		ask = &asked.Ask
	}
	if err := said.Meets(a.desk, ask, now); err != nil {
		return e, err
	}
	by := &grant.Afar{Who: said.Who, Way: way}
	if !said.Allow {
		g, err := b.TurnDown(ask.Request, ask.Target, grant.Decision{Time: now, Reason: said.Reason, Afar: by})
		g.Reason = said.Reason // the person's, behind the person's deed
		return g.Event(audit.Info, "turned down by "+by.String(), nil), err
	}
	line, err := grant.ParseLine(grant.Allow, ask.Target)
	if err != nil || line.Text != ask.Target {
		return e, errors.New("the target of the request is none that can be granted")
	}
	asked := grant.Grant{Number: ask.Request, Kind: grant.Allow, Target: ask.Target, Reason: said.Reason, Afar: by}
	g, _, err := a.enter(b, asked, time.Duration(said.Seconds)*time.Second)
	return g.Event(audit.Allow, "allowed "+g.Until(g.Made)+" by "+by.String(), nil), err
}

// fresh leaves out what the way showed before. What it shows now is remembered, and nothing else.
func (a *approvals) fresh(way string, all []answer) (out []answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := marks{}
	for _, one := range all[:min(len(all), approval.MaxAnswers)] {
		mark := sha256.Sum256([]byte(one.way + "\x00" + one.line))
		if now[mark] = true; !a.known[way][mark] {
			out = append(out, one)
		}
	}
	a.known[way] = now
	return out
}

// tell says what is wrong with a way, once, and again when it is something else.
func (a *approvals) tell(way string, err error) {
	words := ""
	if err != nil {
		words = text.Clean(text.InOneLine(err))
	}
	a.mu.Lock()
	again := a.said[way] == words
	a.said[way] = words
	a.mu.Unlock()
	if words != "" && !again {
		a.log.Error("no answers from afar", "way", way, "error", words)
		a.guardian(audit.Fault, "approvals: "+way+": "+words)
	}
}

// linesOf are the answers in what a server has sent, which nobody has looked at.
func linesOf(way, sent string) (all []answer) {
	for line := range strings.SplitSeq(sent, "\n") {
		if line != "" && len(all) < approval.MaxAnswers {
			all = append(all, answer{way, line})
		}
	}
	return all
}
