// Package scorecard holds the attacks of the catalogue in SECURITY.md as one
// table, and makes them from inside of any container: a box of the lab, a
// container of an engine, an image of somebody else's.
//
// An Attack says in operations of cmd/poke what the agent does. What is known of
// the place, a Setting, is put in for {braces}; an operation for which the place
// lacks something is left out. Each attack has a name and addresses of its own,
// and what arrives on the far side for them has leaked. Only where success
// leaves nothing on the wire is the operation's own word taken for it.
//
// Between operations an attack has events: the container ends and starts again,
// its policy changes, somebody comes in from outside. A Scene says which of them
// can happen in a setting; where one can't, the attack is not tried there, and the
// table says why.
package scorecard
