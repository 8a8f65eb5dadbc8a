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
// What can't be tried from inside of a running container, because it is about
// the start, the policy's change or many servers, is in the table all the same,
// with the tests of the lab that try it.
package scorecard
