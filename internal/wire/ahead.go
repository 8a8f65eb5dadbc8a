package wire

// Ahead is how far a guard resolves the policy's names before anybody asks.
type Ahead uint32

const (
	AheadNone  Ahead = iota // the rules are not applied yet
	AheadFirst              // what the self-test needs
	AheadAll                // the rest must not slow the start down
)
