package gateway

import "testing"

// Each refusal has words of its own: people know it by them.
func TestRefusalWords(t *testing.T) {
	seen := map[string]refusal{}
	for r := refusal(1); r < refusals; r++ {
		if other, twice := seen[r.Error()]; r.Error() == "" || twice {
			t.Errorf("%d has the words %q, as has %d", r, r.Error(), other)
		}
		seen[r.Error()] = r
	}
}
