// Package terminal keeps, in memory, what a terminal shows: it reads the bytes that programs write to a terminal and
// can, at any time, say what has to be sent to another terminal to show the same.
//
// It is a model of what today's terminals agree on (xterm, VTE, kitty, tmux): the VT500 parser of Paul Williams with
// UTF-8, both screens, colours and attributes, scroll regions, wide and combining characters, the modes that change
// what keys and the mouse send, titles, links, and the queries that programs ask. Images, clipboard writes and
// notifications are read over and not kept.
//
// The bytes are hostile: nothing here panics, allocates without a bound or takes more than a fixed time for each byte.
// The package does no I/O, starts no goroutine and reads no clock or environment.
package terminal
