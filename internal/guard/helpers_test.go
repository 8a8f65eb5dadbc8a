package guard

import (
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
)

func newTestEdition() *wire.Edition { return &wire.Edition{Uint64: new(atomic.Uint64)} }

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
