// Package sockowner says which process an internet socket belongs to: Find asks
// the kernel for the socket, which needs no privilege, and a Scanner looks for it
// among the open files of one user's processes.
//
// What it says is for a person to read, and decides nothing. A process can pass
// its sockets on, or close one before it is looked for, and its name is what it
// calls itself.
package sockowner
