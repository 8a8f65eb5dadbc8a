package resolver

import (
	"net"
	"testing"
)

func TestSourcePorts(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    sourcePorts
		ok   func(port int) bool
		most int // at least one port is above this
	}{
		{"usual range", sourcePorts{32768, 60999}, func(n int) bool { return n >= firstPort && n < 32768 || n > 60999 && n <= 65535 }, 60999},
		{"all at the top", sourcePorts{49152, 65535}, func(n int) bool { return n >= firstPort && n < 49152 }, 40000},
		{"all at the bottom", sourcePorts{1024, 30000}, func(n int) bool { return n > 30000 && n <= 65535 }, 60000},
		{"too few left", sourcePorts{1024, 60999}, func(n int) bool { return n == 0 }, -1},
		{"none left", sourcePorts{1, 65535}, func(n int) bool { return n == 0 }, -1},
		{"wrong way round", sourcePorts{60999, 32768}, func(n int) bool { return n == 0 }, -1},
		{"not known", sourcePorts{}, func(n int) bool { return n == 0 }, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			most := 0
			for range 2000 {
				n := tt.p.pick()
				if !tt.ok(n) {
					t.Fatalf("picked %d", n)
				}
				most = max(most, n)
			}
			if most <= tt.most {
				t.Errorf("never picked a port above %d", tt.most)
			}
		})
	}
}

// A question leaves from outside of the kernel's range, and from another port
// each time.
func TestSourcePortsDial(t *testing.T) {
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	p := sourcePorts{32768, 60999}
	seen := map[int]bool{}
	for range 50 {
		c, err := p.dial(server.LocalAddr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		port := c.LocalAddr().(*net.UDPAddr).Port
		c.Close()
		if port >= 32768 && port <= 60999 {
			t.Errorf("port %d is in the kernel's range", port)
		}
		seen[port] = true
	}
	if len(seen) < 40 {
		t.Errorf("only %d ports for 50 questions", len(seen))
	}
}
