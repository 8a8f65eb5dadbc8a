package top

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
)

func logged(t *testing.T, seq uint64) []byte {
	t.Helper()
	data, err := json.Marshal(audit.Event{Seq: seq, Time: noon, Kind: audit.DNS, Verdict: audit.Deny, Name: fmt.Sprintf("n%d.test", seq)})
	if err != nil {
		t.Fatal(err)
	}
	return append(data, '\n')
}

// TestFollower: what the log has at first, and what is added, each line once; a log that is not there yet is waited for.
func TestFollower(t *testing.T) {
	s := &state.State{}
	s.Audit.File = filepath.Join(t.TempDir(), "audit.jsonl")
	l := &follower{ctx: t.Context()}
	if got := l.since(s); len(got) > 0 {
		t.Errorf("of no log: %v", got)
	}
	if !waits(func() bool { return l.fault() != "" }) {
		t.Error("nothing is said of a log that can't be read")
	}
	if err := os.WriteFile(s.Audit.File, append(logged(t, 1), logged(t, 2)...), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []audit.Event
	next := func() bool { got = append(got, l.since(s)...); return len(got) >= 2 }
	if !waits(next) || got[0].Name != "n1.test" || got[1].Name != "n2.test" || l.fault() != "" {
		t.Fatalf("at first %v, %q", got, l.fault())
	}
	f, err := os.OpenFile(s.Audit.File, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, b := range [][]byte{logged(t, 2), []byte("no event\n"), logged(t, 3)} { // a line that was read of the past as well
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if !waits(func() bool { got = append(got, l.since(s)...); return len(got) >= 3 }) || got[2].Name != "n3.test" || len(got) != 3 {
		t.Errorf("then %v", got)
	}
}

// TestFollowerIsBounded: who is not asked for long keeps what fits, and says that there was more.
func TestFollowerIsBounded(t *testing.T) {
	l := &follower{}
	for i := range maxWaiting + 5 {
		l.take(logged(t, uint64(i)+1))
	}
	if len(l.events) != maxWaiting || l.fault() != "the log has grown too fast: 5 of its lines are not counted" {
		t.Errorf("%d events, %q", len(l.events), l.fault())
	}
}

func waits(until func() bool) bool {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if until() {
			return true
		}
	}
	return false
}
