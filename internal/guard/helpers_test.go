package guard

import (
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
