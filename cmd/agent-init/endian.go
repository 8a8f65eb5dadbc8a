package main

import "encoding/binary"

// isLittleEndian says how this machine orders the bytes of a word.
var isLittleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1
