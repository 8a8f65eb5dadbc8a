package dns

import (
	"testing"

	"github.com/agent-init/agent-init/test/attack/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
