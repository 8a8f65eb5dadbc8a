package broker

import (
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestCanary: a million reads of memory, environments, files and open files as the agent, while the broker works,
// and as root of the memory of guard and session server: the key is in none.
func TestCanary(t *testing.T) {
	b := broker(t, "", lab.BoxOptions{Env: []string{"ANTHROPIC_API_KEY=" + rig.BrokerKey, "AGENT_INIT_SESSION=always"}})
	b.Process()
	b.Hand = nil // a hunter may read the agent's own memory, of which a process that stays has too much
	key := []byte(rig.BrokerKey)
	slices.Reverse(key)
	hunted := hex.EncodeToString(key)
	hunt := func(where, n string) *lab.Process {
		return b.Launch("poke", "hunt", "-in", where, "-n", n, hunted)
	}
	// One after the other: a hunter has the key itself. Memory is mostly refused, which is the point.
	for _, h := range []struct{ where, n string }{{"files", "100000"}, {"environ,memory", "900000"}} {
		p := hunt(h.where, h.n)
		for range 50 {
			if p := b.Prompt(b.Ask()...); !p.OK {
				t.Fatalf("the model does not answer: %s", p)
			}
		}
		r := p.Wait(10 * lab.Patience) // a million system calls, beside all else
		found, err := lab.ParsePoke(r.Stdout)
		if err != nil || found.OK || !strings.Contains(found.Err, "not found in ") {
			t.Errorf("%s: %s", h.where, r)
		}
		t.Logf("%s: %s", h.where, found.Err)
	}
	for _, p := range rig.Inmates(t, b.Agent) {
		if strings.HasSuffix(p.Args, " guard") || strings.HasSuffix(p.Args, " __sessions") {
			if inMemory(t, p, rig.BrokerKey[8:]) {
				t.Errorf("%s has the key in its memory", p.Args)
			}
		}
	}
}

// inMemory says whether a process has a text in what it may write.
func inMemory(t *testing.T, p rig.Inmate, text string) bool {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", p.Host)
	maps, err := os.ReadFile(dir + "maps")
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(dir + "mem")
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	read := 0
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || !strings.HasPrefix(mode, "rw") || to-from > 64<<20 {
			continue // the rest of what the runtime reserves has never been used
		}
		area := make([]byte, to-from)
		n, _ := mem.ReadAt(area, from) // a part of it may be gone
		read += n
		if strings.Contains(string(area[:n]), text) {
			return true
		}
	}
	if read < 1<<20 {
		t.Errorf("only %d bytes of %s could be read", read, p.Args)
	}
	return false
}
