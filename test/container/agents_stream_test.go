package container

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/fakellm"
)

// testStream holds that an answer begins over the broker as soon as the model begins it, beside the same request without a
// broker, and that it is not held back until it is whole. The best of twenty counts: the machine may be busy.
func testStream(t *testing.T, e *engine, n *internet, a agentSpec, image string, h *heard, secret string) {
	const pause, later = 50 * time.Millisecond, 50 * time.Millisecond
	h.now(&fakellm.Model{Key: canary, Delay: pause})
	script, err := filepath.Abs("testdata/stream.sh")
	if err != nil {
		t.Fatal(err)
	}
	common := args(a.routed(t, n), []string{"-v", script + ":/test/stream.sh:ro"})
	direct := e.docker(args([]string{"run", "--name", e.name(t), "--user=agent", "--entrypoint=bash"}, common,
		[]string{image, "/test/stream.sh", "https://api.anthropic.com", canary})...)
	broker := e.docker(args([]string{"run", "--name", e.name(t)}, common, []string{"-v", secret + ":/run/secrets/anthropic:ro", image,
		"bash", "-c", `bash /test/stream.sh "$ANTHROPIC_BASE_URL" "$ANTHROPIC_AUTH_TOKEN"`})...)
	firstDirect, _ := best(t, direct)
	first, whole := best(t, broker)
	t.Logf("the first byte took %v without the broker, %v over it, and the whole answer %v", firstDirect, first, whole)
	if first > firstDirect+later {
		t.Errorf("the first byte took %v over the broker, %v without", first, firstDirect)
	}
	if whole < 8*pause || first > whole/2 {
		t.Errorf("the first byte came after %v, the last after %v: the stream was held back", first, whole)
	}
}

// best are the shortest times of stream.sh.
func best(t *testing.T, r result) (first, whole time.Duration) {
	t.Helper()
	count := 0
	for line := range strings.Lines(r.stdout) {
		var f, w float64
		if n, _ := fmt.Sscanf(line, "took %f %f 200\n", &f, &w); n != 2 {
			continue
		}
		seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
		if count++; count == 1 || seconds(f) < first {
			first = seconds(f)
		}
		if whole == 0 || seconds(w) < whole {
			whole = seconds(w)
		}
	}
	if count != 20 {
		t.Fatalf("exit %d, %d answers, want 20\n%s%s", r.code, count, r.stdout, r.stderr)
	}
	return first, whole
}
