package fault

import (
	"fmt"
	"io"
)

// Warn is one line of cause and one of remedy that stop nothing.
func Warn(w io.Writer, cause, remedy string) {
	fmt.Fprintf(w, "agent-init: warning: %s\n  remedy: %s\n", cause, remedy)
}
