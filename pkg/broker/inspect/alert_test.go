package inspect

import "testing"

// TestAlertIn: what OpenSSL sends in the clear is known for what it is, also behind what comes with it.
func TestAlertIn(t *testing.T) {
	const unknownCA = "\x15\x03\x03\x00\x02\x02\x30"
	for read, want := range map[string]uint8{
		unknownCA: 48, "\x14\x03\x03\x00\x01\x01" + unknownCA: 48,
		"": 0, unknownCA[1:]: 0, unknownCA + "x": 0, "\x15\x03\x03\x00\x13" + unknownCA[5:]: 0, "\x15\x03\x03\x00\x02\x01\x00": 0,
	} {
		if got := alertIn([]byte(read)); got != want {
			t.Errorf("%x: %d, want %d", read, got, want)
		}
	}
}
