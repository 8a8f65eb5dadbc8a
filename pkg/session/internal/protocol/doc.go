// Package protocol is what a session's server and its clients say to each other, and
// how both cut what a terminal sends and is sent into characters and sequences.
package protocol
