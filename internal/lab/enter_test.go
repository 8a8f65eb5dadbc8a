package lab_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestLabEnterWhileStarting: who comes into a box while it starts is in the box's
// network, and never in the machine's, where the box's first process comes from.
func TestLabEnterWhileStarting(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	b := l.NewBox(lab.BoxOptions{})
	inode, err := b.Net.Inode()
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("net:[%d]", inode)
	came := 0
	for range 30 {
		var wg sync.WaitGroup
		stop := make(chan struct{})
		var mu sync.Mutex
		for range 2 {
			wg.Go(func() {
				for {
					r, err := b.TryExec(lab.Cmd{Args: []string{"readlink", "/proc/self/ns/net"}})
					if err == nil && r.Code == 0 {
						mu.Lock()
						came++
						mu.Unlock()
						if got := strings.TrimSpace(r.Stdout); got != want {
							t.Errorf("in the network %s, want %s", got, want)
						}
					}
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
		b.Idle()
		close(stop)
		wg.Wait()
		b.Kill()
	}
	if came == 0 {
		t.Error("proves nothing: nobody came in")
	}
}
