package container

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/agent-init/agent-init/internal/lab/fakellm"
)

// heard is what a model was sent, which may be another one from time to time.
type heard struct {
	mu     sync.Mutex
	model  http.Handler
	bodies [][]byte
}

// now has another model answer.
func (h *heard) now(model http.Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.model = model
}

// noting notes what comes to the model's API.
func (h *heard) noting() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
		if err != nil {
			return
		}
		h.mu.Lock()
		h.bodies = append(h.bodies, body)
		model := h.model
		h.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		model.ServeHTTP(w, r)
	})
}

func (h *heard) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bodies = nil
}

// all says whether one body has all lines, as JSON.
func (h *heard) all(lines []string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, body := range h.bodies {
		missing := false
		for _, line := range lines {
			quoted, _ := json.Marshal(line)
			missing = missing || !bytes.Contains(body, bytes.Trim(quoted, `"`))
		}
		if !missing {
			return true
		}
	}
	return false
}

// memory is where an image has what the model is told of where it is.
const memory = "/usr/share/agent-init/AGENTS.md"

// testTold holds that the model was sent what the image has to tell it, and the tools to ask with, and that the agent could not change that.
func testTold(t *testing.T, e *engine, a agentSpec, image string, h *heard) {
	out := e.docker("run", "--name", e.name(t), "--network=none", "--user=agent", "--entrypoint=sh", image, "-c",
		"cat "+memory+" && test ! -w "+memory+" && test -z \"$(find /etc /AGENTS.md -writable ! -type l 2>/dev/null)\"")
	lines := strings.Split(strings.TrimSpace(out.stdout), "\n")
	if out.code != 0 || len(lines) < 5 || !strings.Contains(out.stdout, "agent-init explain") || !strings.Contains(out.stdout, "/run/agent-init/README.md") {
		t.Fatalf("%s: exit %d\n%s%s", memory, out.code, out.stdout, out.stderr)
	}
	if !h.all(lines) {
		t.Errorf("%s did not send its model what %s says", a.name, memory)
	}
	if a.mcp != "" && !h.all([]string{a.mcp}) {
		t.Errorf("%s did not tell its model of the tools of agent-init mcp: %s", a.name, a.mcp)
	}
}

// answer is what an agent says in the end; a stand-in is asked for its version alone.
func (a agentSpec) answer() string {
	if a.prompt == nil {
		return "stand-in"
	}
	return fakellm.Text
}
