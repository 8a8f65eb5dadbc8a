package inspect

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// TestExplainPort: a port of this container that is published and not let in is
// told, since whoever connects to it only waits.
func TestExplainPort(t *testing.T) {
	for want, tc := range map[string]struct {
		inbound []uint16
		listens []uint16
	}{
		"port 3000 listens and is not in inbound":                {nil, []uint16{3000}},
		"port 3000 listens and is in inbound":                    {[]uint16{3000}, []uint16{3000}},
		"port 3000 is in inbound, and nothing listens on it":     {[]uint16{3000}, nil},
		"port 3000 is not in inbound, and nothing listens on it": {[]uint16{3002}, []uint16{3001}},
	} {
		if r := explainInbound(3000, tc.inbound, tc.listens); r.Reason != want {
			t.Errorf("%q, want %q", r.Reason, want)
		}
	}
	s, err := parseSubject("3000")
	if err != nil || !s.here || s.port.Number != 3000 {
		t.Errorf("%+v, %v", s, err)
	}
	p := wellPatient(t)
	p.listens, p.inbound = []uint16{3000, 8080}, []uint16{8080}
	found := slices.DeleteFunc(examine(p).Findings, func(f finding) bool { return f.Check != "inbound" })
	if len(found) != 1 || found[0].Result != warns || !strings.Contains(found[0].Detail, "port 3000 listens and is not in inbound") {
		t.Errorf("doctor: %+v", found)
	}
}

// TestListening: of the agent's sockets, those that somebody else can reach.
func TestListening(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		mustrun.Lacks(t, "the sample is of a machine that is little-endian")
	}
	file := filepath.Join(t.TempDir(), "tcp")
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	line := func(at, state, uid string) string {
		return "   0: " + at + " 00000000:0000 " + state + " 00000000:00000000 00:00000000 00000000  " + uid + "        0 1 1 0\n"
	}
	if err := os.WriteFile(file, []byte(head+line("00000000:0BB8", "0A", "1000")+line("0100007F:0BB9", "0A", "1000")+line("00000000:0BBA", "01", "1000")+
		line("00000000:0BBB", "0A", "64901")+line("00000000000000000000000001000000:0BBC", "0A", "1000")+line("00000000000000000000000000000000:0BBD", "0A", "1000")), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := listening(1000, file, "/nonexistent"); !slices.Equal(got, []uint16{3000, 3005}) {
		t.Errorf("%v", got)
	}
}
