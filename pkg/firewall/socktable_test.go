package firewall

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// tables makes a directory like /proc/net.
func tables(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for file, content := range files {
		must(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
	}
	return dir
}

const tcpHead = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

func TestSocketOwners(t *testing.T) {
	line := func(uid string) string {
		return fmt.Sprintf("   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 %s        0 123 1 ffff 100 0 0 10 0\n", uid)
	}
	const packet = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\nffff888 3      3    0003   2     1 0      64903  456\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
		fails bool
	}{
		"no tables":     {want: "[]"},
		"no sockets":    {map[string]string{"tcp": tcpHead}, "[]", false},
		"of two tables": {map[string]string{"tcp": tcpHead + line(" 1000") + line("64901"), "udp6": tcpHead + line("64902"), "packet": packet}, "[1000 64901 64902 64903]", false},
		"too short":     {map[string]string{"tcp": tcpHead + "0: 1\n"}, "", true},
		"no number":     {map[string]string{"raw": tcpHead + line("root")}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			uids, err := socketOwners(tables(t, c.files))
			if (err != nil) != c.fails {
				t.Fatalf("got %v", err)
			}
			if got := fmt.Sprint(slices.Sorted(maps.Keys(uids))); err == nil && got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// What the kernel counts is what it lists: a socket of either family is found.
func TestKernelSocketOwners(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	newLab(t)
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		eventually(t, "no socket", func() bool { // what the lab has dialled may take its time to end
			uids, err := SocketOwners()
			must(t, err)
			return len(uids) == 0
		})
		lis, err := net.Listen("tcp", addr)
		must(t, err)
		if uids, err := SocketOwners(); err != nil || !uids[0] {
			t.Errorf("listening on %s: %v, %v", addr, uids, err)
		}
		conn, err := net.Dial("tcp", lis.Addr().String())
		must(t, err)
		accepted, err := lis.Accept()
		must(t, err)
		lis.Close()
		if uids, err := SocketOwners(); err != nil || !uids[0] {
			t.Errorf("connected to %s: %v, %v", addr, uids, err)
		}
		for _, c := range []net.Conn{conn, accepted} {
			must(t, c.(*net.TCPConn).SetLinger(0)) // or it would linger in the table
			c.Close()
		}
	}
}

func TestListeners(t *testing.T) {
	const head, rest = tcpHead, " 00000000:00000000 00:00000000 00000000 0\n"
	got, err := listeners(tables(t, map[string]string{
		"tcp":  head + "   0: 0B00007F:9C75 00000000:0000 0A" + rest + "   1: 0100007F:1F40 00000000:0000 0A" + rest + "   2: 020200C0:0016 010200C0:1234 01" + rest,
		"tcp6": head + "   0: B80D0120000000000000000001000000:01BB 00000000000000000000000000000000:0000 0A" + rest,
	}), "")
	must(t, err)
	want := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:8000"), netip.MustParseAddrPort("[2001:db8::1]:443")}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, not %v", got, want)
	}
	if got, err := listeners(t.TempDir(), ""); err != nil || len(got) != 0 {
		t.Errorf("without tables: %v, %v", got, err)
	}
	if got, err := listeners(tables(t, map[string]string{"tcp": head + "   0: xyz:9C75 00000000:0000 0A" + rest}), ""); err == nil {
		t.Errorf("nonsense gave %v", got)
	}
}

// TestListeningPorts: of the agent's sockets, those that somebody else can reach.
func TestListeningPorts(t *testing.T) {
	line := func(at, state, uid string) string {
		return "   0: " + at + " 00000000:0000 " + state + " 00000000:00000000 00:00000000 00000000  " + uid + "        0 1 1 0\n"
	}
	dir := tables(t, map[string]string{"tcp": tcpHead + line("00000000:0BB8", "0A", "1000") + line("0100007F:0BB9", "0A", "1000") +
		line("00000000:0BBA", "01", "1000") + line("00000000:0BBB", "0A", "64901") + line("00000000000000000000000001000000:0BBC", "0A", "1000") +
		line("00000000000000000000000000000000:0BBD", "0A", "1000")})
	if got := listeningPorts(dir, 1000); !slices.Equal(got, []uint16{3000, 3005}) {
		t.Errorf("%v", got)
	}
}

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

func TestConnections(t *testing.T) {
	got, err := connectionsOf(tables(t, map[string]string{"tcp": procTCP}), 64901)
	must(t, err)
	ssh := Element{Addr: netip.MustParseAddr("45.30.0.10"), Proto: 6, Port: 444}
	want := []Element{ssh, {Addr: netip.MustParseAddr("2a0f:30::10"), Proto: 6, Port: 444}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, err := connectionsOf(tables(t, map[string]string{"tcp6": tcpHead + "1: x:y 0A001E2D:01BC 01 0 0 0 64901\n"}), 64901); err == nil {
		t.Error("nonsense was read")
	}
}
