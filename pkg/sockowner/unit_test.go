package sockowner

import (
	"net/netip"
	"testing"
)

// FuzzReplies: nothing that looks like an answer of the kernel's ends the program.
func FuzzReplies(f *testing.F) {
	f.Add([]byte{})
	f.Add(connected(netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")))
	f.Add(bound(10, 17, netip.Addr{}, 53))
	f.Fuzz(func(t *testing.T, b []byte) {
		var found []diagnosed
		_, err := replies(b, 0, func(d diagnosed, _ []byte) { found = append(found, d) })
		if err == nil && len(found) > len(b)/diagMsgLen {
			t.Errorf("%d sockets in %d bytes", len(found), len(b))
		}
	})
}
