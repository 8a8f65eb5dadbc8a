package firewall

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// What gVisor's /proc/net/tcp and tcp6 look like.
const procTCP = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   2: 02001EAC:F8F2 0A001E2D:01BC 01 00000000:00000000 00:00000000 00000000 64901        0        3 1 0000000000000000 0 0 0 0 -1
   3: 02001EAC:F8F3 0A001E2D:01BB 01 00000000:00000000 00:00000000 00000000  1000        0        3 1 0000000000000000 0 0 0 0 -1
   4: 02001EAC:F8F4 0B001E2D:01BB 02 00000000:00000000 00:00000000 00000000 64901        0        3 1 0000000000000000 0 0 0 0 -1
   5: 0100007F:9C40 02001EAC:F8F3 01 00000000:00000000 00:00000000 00000000 64901        0        3 1 0000000000000000 0 0 0 0 -1
   6: 02001EAC:9C40 02001EAC:F8F3 01 00000000:00000000 00:00000000 00000000 64901        0        3 1 0000000000000000 0 0 0 0 -1
   7: 0100007F:9C40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 64901        0        3 1 0000000000000000 0 0 0 0 -1
   8: B80D0120000030000000000002000000:E961 30000F2A000000000000000010000000:01BC 01 00000000:00000000 00:00000000 00000000 64901        0        4 1 0000000000000000 0 0 0 0 -1
   9: 02001EAC:F8F5 0A001E2D:01BC 01 00000000:00000000 00:00000000 00000000 64901        0        3 1 0000000000000000 0 0 0 0 -1
`

func TestParseConnections(t *testing.T) {
	got, err := parseConnections(strings.NewReader(procTCP), 64901)
	must(t, err)
	ssh := Element{Addr: netip.MustParseAddr("45.30.0.10"), Proto: 6, Port: 444}
	want := []Element{ssh, {Addr: netip.MustParseAddr("2a0f:30::10"), Proto: 6, Port: 444}, ssh}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, err := parseConnections(strings.NewReader("1: x:y 0A001E2D:01BC 01 0 0 0 64901\n"), 64901); err == nil {
		t.Error("nonsense was read")
	}
}
