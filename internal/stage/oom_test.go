package stage

import "testing"

// TestOOMOrder: wherever there is room for it, the agent goes before the session
// server, that before the guard, and that before the keeper.
func TestOOMOrder(t *testing.T) {
	for own := -1000; own <= 1000; own++ {
		order := []int{own, GuardGoes.oomScore(own), SessionGoes.oomScore(own), AgentGoes.oomScore(own)}
		for i := range order[1:] {
			if order[i+1] > 1000 || order[i+1] < order[i] || order[i+1] == order[i] && own <= 995 {
				t.Fatalf("from %d: %v", own, order)
			}
		}
	}
	if got := AgentGoes.oomScore(0); got != 500 {
		t.Errorf("the agent is at %d", got)
	}
}
