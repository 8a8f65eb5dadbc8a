package pid1check

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

func TestMain(m *testing.M) {
	Role()
	os.Exit(m.Run())
}

// TestKernelConformance runs every check against agent-init. Where it differs
// on purpose it has to differ: else what the documentation says is out of date.
func TestKernelConformance(t *testing.T) {
	lab.Require(t)
	subject := AgentInit(lab.Binary(t))
	for _, c := range Checks() {
		for _, m := range c.Modes() {
			t.Run(c.Name+"/"+strings.ReplaceAll(string(m), " ", "-"), func(t *testing.T) {
				t.Parallel()
				err := Run(subject, m, c)
				switch {
				case c.Differs == "" && err != nil:
					t.Errorf("%s: %v", c.Text, err)
				case c.Differs != "" && err == nil:
					t.Errorf("it does: %s", c.Text)
				case c.Differs != "" && errors.Is(err, ErrNotOffered):
					t.Error(err)
				}
			})
		}
	}
}
