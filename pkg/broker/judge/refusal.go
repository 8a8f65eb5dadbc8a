package judge

import (
	"fmt"
	"strconv"
)

// Refusal is why a request does not pass.
type Refusal struct {
	What string // of what kind, one word: path, header, tool, content, model, …
	Text string // for the person and the model: what is refused, and which setting says so
}

func refuse(what, format string, args ...any) *Refusal {
	return &Refusal{What: what, Text: fmt.Sprintf(format, args...)}
}

// quote is a text of the agent's for a message of ours: at most n bytes of it, on one line.
func quote[T ~string | ~[]byte](text T, n int) string {
	quoted := string(text)
	if len(quoted) > n {
		quoted = quoted[:n] + "…"
	}
	quoted = strconv.QuoteToGraphic(quoted)
	return quoted[1 : len(quoted)-1]
}
