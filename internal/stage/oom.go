package stage

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Where memory is short the kernel ends the process that uses most of it, counted from its
// oom_score_adj on (proc_pid_oom_score_adj(5)): hundreds of small processes of the agent's would
// leave the keeper as the largest. So whatever the keeper starts comes before it. Raising the
// value takes no privilege, and lowering it below what the container was given does.

// Rank says which of our processes goes first.
type Rank int

const (
	AgentGoes   Rank = iota // what has no other rank
	SessionGoes             // the terminals of the agent
	GuardGoes               // names and connections
)

// oomSpan is how far the agent is above the keeper: half of all memory.
const oomSpan = 500

// oomScore is the value for a process that a keeper with that own one starts.
// Where there is less than the span above it, the steps are smaller.
func (r Rank) oomScore(own int) int {
	span := min(oomSpan, 1000-own)
	switch r {
	case GuardGoes:
		return own + span/5
	case SessionGoes:
		return own + span*2/5
	}
	return own + span
}

// Take gives this process its rank, above that of who has started it.
func (r Rank) Take() error {
	_, err := SetOOMScore(r.oomScore)
	return err
}

// SetOOMScore puts to in the place of this process's own value, which it returns.
func SetOOMScore(to func(own int) int) (own int, err error) {
	const file = "/proc/self/oom_score_adj"
	data, err := os.ReadFile(file)
	if err == nil {
		own, err = strconv.Atoi(strings.TrimSpace(string(data)))
	}
	if err == nil {
		err = os.WriteFile(file, []byte(strconv.Itoa(to(own))), 0)
	}
	return own, err
}

// OomCaveat says why the agent's processes may not be the first to go, or "".
func OomCaveat() string {
	own, err := SetOOMScore(func(own int) int { return own })
	switch {
	case err != nil:
		return fmt.Sprintf("where memory is short, any process may be ended first: %v", err)
	case GuardGoes.oomScore(own) == own:
		return fmt.Sprintf("where memory is short, any process may be ended first: oom_score_adj is %d, and nothing can be above", own)
	}
	return ""
}
