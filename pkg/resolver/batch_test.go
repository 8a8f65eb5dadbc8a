package resolver

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// Queries that have piled up, more than one call takes and of several clients,
// each get their own answer, in either family; an odd one among them gets none.
func TestQueriesThatPiledUp(t *testing.T) {
	for _, host := range []string{"127.0.0.1:0", "[::1]:0"} {
		r := newRig(t, "*.ok.test")
		pc, err := net.ListenPacket("udp", host)
		if err != nil {
			t.Fatal(err)
		}
		const perClient = batchSize + 5
		var clients [3]net.Conn
		for c := range clients {
			if clients[c], err = net.Dial("udp", pc.LocalAddr().String()); err != nil {
				t.Fatal(err)
			}
			defer clients[c].Close()
			for i := range perClient {
				q := asks(fmt.Sprintf("c%d-%d.evil.test.", c, i), dns.TypeA)
				q.Id = uint16(i)
				pkt, err := q.Pack()
				if err != nil {
					t.Fatal(err)
				}
				for _, msg := range [][]byte{pkt, {1, 2, 3}} {
					if _, err := clients[c].Write(msg); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- r.Serve(ctx, []net.PacketConn{pc}, nil) }()
		for c, conn := range clients {
			if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, maxUDPReply)
			for i := range perClient {
				n, err := conn.Read(buf)
				var m dns.Msg
				if err == nil {
					err = m.Unpack(buf[:n])
				}
				want := fmt.Sprintf("c%d-%d.evil.test.", c, i)
				if err != nil || m.Id != uint16(i) || m.Question[0].Name != want || m.Rcode != dns.RcodeNameError {
					t.Fatalf("%s: client %d, reply %d: %v, %v", host, c, i, err, &m)
				}
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
}
