package attach

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A client that is put out as soon as it is connected comes back slower each time.
func TestLabCostlyScreenPauses(t *testing.T) {
	a := &attachment{}
	var pauses []string
	for i := range 8 {
		a.connected = time.Now()
		if i == 6 {
			a.connected = time.Now().Add(-2 * steadyAfter)
		}
		if err := a.disconnected(); err != nil {
			t.Fatal(err)
		}
		pauses = append(pauses, fmt.Sprint(a.pause))
	}
	if got, want := strings.Join(pauses, " "), "100ms 200ms 400ms 800ms 1.6s 2s 100ms 200ms"; got != want {
		t.Errorf("pauses %s, want %s", got, want)
	}
	if end := a.deadline(); end.IsZero() || time.Until(end) > 200*time.Millisecond {
		t.Errorf("it waits until %v", end)
	}
}
