package privdrop

import (
	"strings"
	"testing"
)

// TestKernelNice: the command stands back as far as it is told, or its caller does, and can't come forward again.
func TestKernelNice(t *testing.T) {
	const forward = "nice; for n in -1 -15; do nice -n $n true 2>/dev/null; done; nice -n -5 nice 2>/dev/null; chrt -f 1 true 2>/dev/null && echo real time; nice -n 3 nice"
	for _, tt := range []struct {
		name    string
		nice    int
		wrapper []string
		want    string
	}{
		{"as told", 10, nil, "10 10 13"},
		{"a caller that stands further back", 10, []string{"nice", "-n", "15"}, "15 15 18"},
		{"not told", 0, nil, "0 0 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := command("sh", "-c", forward)
			spec.Nice = tt.nice
			out, code := stage(t, append([]string{"setpriv", "--bounding-set=-sys_nice", "--"}, tt.wrapper...), spec)
			if got := strings.Join(strings.Fields(out), " "); code != 0 || got != tt.want {
				t.Errorf("exit %d: %s, want %s", code, got, tt.want)
			}
		})
	}
}
