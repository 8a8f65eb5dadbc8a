// Package control carries commands to a process that owns something, over a
// unix socket: one request and one reply for each connection, each a line of
// JSON.
//
// Who is on the other end is known before anything is read from it: the kernel
// says with which uid the peer connected (SO_PEERCRED, unix(7)), and a peer that
// may not speak gets a refusal and nothing else. A request has a bounded size
// and a fixed set of fields, each with bounds of its own, and what a request
// means is the handler's business. The peer has a deadline, connections have a
// limit, so a peer that stalls holds up nobody but itself.
package control
