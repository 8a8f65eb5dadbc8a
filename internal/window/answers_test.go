package window

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
)

// TestServeAnswers: the client on the container's terminal can say four things about a request, and nothing else.
func TestServeAnswers(t *testing.T) {
	var asked, recorded []string
	k := Host{
		Log:    slog.New(slog.DiscardHandler),
		Record: func(e audit.Event) { recorded = append(recorded, e.Reason) },
		Decide: func(_ context.Context, p control.Peer, r control.Request) control.Reply {
			asked = append(asked, fmt.Sprintf("%d: %s %q %d seconds=%d save=%t", p.UID, r.Verb, r.Target, r.Number, r.Seconds, r.Save))
			if r.Number == 5 {
				return control.Reply{Error: strings.Repeat("x", 2*sessionop.MaxText), Remedy: "none"}
			}
			return control.Reply{OK: true, Data: json.RawMessage(`"` + strings.Repeat("x", int(r.Seconds+1)*2*sessionop.MaxText) + `"`)}
		},
	}
	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := wire.OpenPair(theirs)
	if err != nil {
		t.Fatal(err)
	}
	ch, ended := wire.Open(conn, sessionop.MaxText), make(chan struct{})
	go func() {
		k.serveAnswers(wire.Open(ours, sessionop.MaxText), control.Peer{UID: 64903, PID: 7})
		close(ended)
	}()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, c := range []struct {
		verdict sessionop.Verdict
		number  uint32
		target  string
		ok      bool
	}{
		{sessionop.ForMinutes, 3, "a.test", true}, {sessionop.ForStart, 3, "a.test", true}, {sessionop.ForGood, 3, "a.test", true},
		{sessionop.TurnedDown, 3, "a.test", true}, {0, 3, "a.test", false}, {9, 3, "a.test", false}, {sessionop.ForGood, 0, "a.test", false},
		{sessionop.ForGood, 3, "", false}, {sessionop.ForGood, 3, "a.test\n*.test", false}, {sessionop.ForGood, 3, strings.Repeat("a", 400), false},
		{sessionop.ForStart, 5, "a.test", false},
	} {
		if err := ch.Send(wire.Message{Op: sessionop.Answer, Flag: uint8(c.verdict), ID: c.number, Text: c.target, UID: 0}, null); err != nil {
			t.Fatal(err)
		}
		m, _, err := ch.Receive()
		var reply control.Reply
		if err == nil {
			err = json.Unmarshal([]byte(m.Text), &reply)
		}
		if err != nil || reply.OK != c.ok || m.ID != c.number {
			t.Errorf("%+v: %v, %v", c, m, err)
		}
	}
	if err := ch.Send(wire.Message{Op: sessionop.Open, Text: sessionop.JoinCommand("", []string{"sh"})}, nil); err != nil {
		t.Fatal(err)
	}
	<-ended
	want := []string{
		`64903: allow "a.test" 3 seconds=0 save=false`, `64903: allow "a.test" 3 seconds=-1 save=false`,
		`64903: allow "a.test" 3 seconds=0 save=true`, `64903: end "a.test" 3 seconds=0 save=false`,
		`64903: allow "a.test" 5 seconds=-1 save=false`,
	}
	if !slices.Equal(asked, want) || len(recorded) == 0 || recorded[0] != "answered request 3 at the container's terminal" {
		t.Errorf("asked %q, recorded %q", asked, recorded)
	}
	if _, _, err := ch.Receive(); err == nil {
		t.Error("who asks for anything else is answered on")
	}
}
