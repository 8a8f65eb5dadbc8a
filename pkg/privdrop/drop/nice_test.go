package drop

import (
	"fmt"
	"strings"
	"testing"
)

// TestKernelNice: the command stands back as far as it is told, or its caller does, and can't come forward again.
func TestKernelNice(t *testing.T) {
	const forward = "nice; for n in -1 -15; do nice -n $n true 2>/dev/null; done; nice -n -5 nice 2>/dev/null; chrt -f 1 true 2>/dev/null && echo real time; nice -n 3 nice"
	const policies = "; for p in o b f r; do chrt -$p 0 true 2>/dev/null && echo left; done; awk '{print $41}' /proc/self/stat"
	ours, err := niceness()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		nice    int
		wrapper []string
		want    int
	}{
		{"as told", 10, nil, max(ours, 10)},
		{"as far as there is", idleNice, nil, idleNice},
		{"a caller that stands further back", 10, []string{"nice", "-n", "12"}, min(ours+12, 19)},
		{"not told", 0, nil, ours},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec, idle := command("sh", "-c", forward), ""
			if tt.nice == idleNice {
				spec, idle = command("sh", "-c", forward+policies), " 5" // sched(7): SCHED_IDLE
			}
			spec.Nice = tt.nice
			out, code := stage(t, append([]string{"setpriv", "--bounding-set=-sys_nice", "--"}, tt.wrapper...), spec)
			want := fmt.Sprintf("%d %[1]d %d", tt.want, min(tt.want+3, 19)) + idle
			if got := strings.Join(strings.Fields(out), " "); code != 0 || got != want {
				t.Errorf("exit %d: %s, want %s", code, got, want)
			}
		})
	}
}
