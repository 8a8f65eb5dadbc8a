package privdrop

import "golang.org/x/sys/unix"

// closedHere are the calls of closed that only this architecture has.
var closedHere = []uint32{unix.SYS_RENAMEAT}
