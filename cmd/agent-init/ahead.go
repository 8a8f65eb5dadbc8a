package main

// ahead is how far a guard resolves the policy's names before anybody asks.
type ahead uint32

const (
	aheadNone  ahead = iota // the rules are not applied yet
	aheadFirst              // what the self-test needs
	aheadAll                // the rest must not slow the start down
)
