// Package attach is the client of a session: it shows a window of a server's
// (package session) on a terminal, and asks a server for what needs no terminal.
package attach
