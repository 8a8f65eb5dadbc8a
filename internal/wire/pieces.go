package wire

import "encoding/binary"

// Pieces is the text of a message that holds more than one thing, each behind its length. None is longer than 64 KiB.
func Pieces(all ...[]byte) string {
	var b []byte
	for _, p := range all {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(p))), p...)
	}
	return string(b)
}

// Parted is what Pieces has put together.
func Parted(text string) (all [][]byte, err error) {
	for b := []byte(text); len(b) > 0; {
		if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
			return nil, ErrMalformed
		}
		n := 2 + int(binary.BigEndian.Uint16(b))
		all, b = append(all, b[2:n]), b[n:]
	}
	return all, nil
}
