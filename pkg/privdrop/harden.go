package privdrop

import "errors"

// Harden makes the calling process undumpable, so that no other uid can read
// its memory, environment or descriptors, and reduces the capabilities of all
// its threads to keep (unix.CAP_… numbers), as far as it holds those. The
// bounding set stays, since children that Exec need it. It needs a binary that
// was built without cgo.
func Harden(keep ...int) error { return errors.New("not built yet") }

// Require returns a *CapabilityError if the calling process lacks a capability
// of need (unix.CAP_… numbers). For what Exec needs, see ExecCapabilities.
func Require(need ...int) error { return errors.New("not built yet") }

// ExecCapabilities are the capabilities that Exec needs: SETUID, SETGID and
// SETPCAP.
func ExecCapabilities() []int { return nil }
