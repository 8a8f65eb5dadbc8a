// Package judge says what of a request may pass on a route of the broker's. It is pure: no socket, no file, no clock.
package judge

// Refusal is why a request does not pass.
type Refusal struct {
	What string // of what kind, one word: path, header, tool, content, model, …
	Text string // for the person and the model: what is refused, and which setting says so
}

// Told is what a body says of itself.
type Told struct {
	Model       string
	Stream      bool // the answer is asked for as a stream
	CountsUsage bool // the answer will say what it has cost
}
