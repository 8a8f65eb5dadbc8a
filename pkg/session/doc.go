// Package session keeps terminals alive while nobody looks at them: a Server
// with a window for each. The client that shows one is package attach.
//
// The Server runs without any privilege. It reads what two hostile sides
// write, the programs in the windows and the clients, and is built so that
// neither can hold up the other: each window is read by one goroutine that
// never waits for a client, and keeps a model of the screen (package terminal).
// A client that is slow loses its place in the stream and gets the screen as it
// is once it has caught up; one that reads nothing for ten seconds is put out.
//
// While a client keeps up and its terminal has the window's size, it gets the
// program's bytes untouched, but for requests to read the clipboard, which are
// taken out. A client of another size is shown the screen as the model has it.
//
// The window has the size of the client that typed last. That client, the
// leader, is also the one whose terminal answers the program's questions; the
// others don't see them, or each would answer.
package session
