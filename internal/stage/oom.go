package stage

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Where memory is short the kernel ends the process that uses most of it, counted
// from its oom_score_adj on (proc_pid_oom_score_adj(5)): hundreds of small processes
// of the agent's would leave the keeper as the largest. So whatever the keeper starts
// comes before it, in thousandths of the memory that there is. Raising the value takes
// no privilege, and lowering it again below what the container was given does.

// Rank says which of our processes goes first.
type Rank int

const (
	AgentGoes   Rank = iota // what has no other rank
	SessionGoes             // the terminals of the agent
	GuardGoes               // names and connections
)

// oomSpan is how far the agent is above the keeper: half of all memory.
const oomSpan = 500

const oomFile = "/proc/self/oom_score_adj"

// oomScore is the value for a process that a keeper with that own one starts.
// Where there is less than the span above it, the steps are smaller.
func (r Rank) oomScore(own int) int {
	const highest = 1000
	span := min(oomSpan, highest-own)
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
	own, err := ownOOMScore()
	if err != nil {
		return err
	}
	return os.WriteFile(oomFile, []byte(strconv.Itoa(r.oomScore(own))), 0)
}

func ownOOMScore() (int, error) {
	data, err := os.ReadFile(oomFile)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}

// OomCaveat says why the agent's processes may not be the first to go, or "".
func OomCaveat() string {
	own, err := ownOOMScore()
	if err == nil {
		err = os.WriteFile(oomFile, []byte(strconv.Itoa(own)), 0)
	}
	switch {
	case err != nil:
		return fmt.Sprintf("where memory is short, any process may be ended first: %v", err)
	case GuardGoes.oomScore(own) == own:
		return fmt.Sprintf("where memory is short, any process may be ended first: oom_score_adj is %d, and nothing can be above", own)
	}
	return ""
}
