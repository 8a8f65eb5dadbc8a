package resolver

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// BenchmarkCached has clients ask for cached names over UDP on loopback: as fast
// as they can with up to 50 questions under way, and 20 at once every millisecond.
// They are on the same processors, so the server can do more than is measured.
func BenchmarkCached(b *testing.B) {
	b.Run("saturated", func(b *testing.B) { benchmarkCached(b, 25, 0) })
	b.Run("20000 a second", func(b *testing.B) { benchmarkCached(b, 10, time.Millisecond) })
}

// benchmarkCached has two clients, each with a window of questions under way. A
// tick makes them wait for all the answers, and then for the tick.
func benchmarkCached(b *testing.B, window int, tick time.Duration) {
	r := newRig(b, "*.ok.test")
	var queries [][]byte
	for i := range 64 {
		name := fmt.Sprintf("n%d.ok.test.", i)
		r.up.set(b, name, "A", name+" 300 A 192.0.2.1")
		r.lookupA(name)
		pkt, err := asks(name, dns.TypeA).Pack()
		if err != nil {
			b.Fatal(err)
		}
		queries = append(queries, pkt)
	}
	addr := r.serve()
	const clients = 2
	took := make([][]time.Duration, clients)
	b.ResetTimer()
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			conn, err := net.Dial("udp", addr)
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			var sent [1 << 16]time.Time
			in := make([]byte, 2048)
			todo, waiting, id := b.N/clients+1, 0, uint16(0)
			next := time.Now()
			for todo > 0 || waiting > 0 {
				if tick > 0 && waiting == 0 {
					time.Sleep(time.Until(next))
					next = next.Add(tick)
				}
				full := tick > 0 && waiting > 0
				for ; !full && waiting < window && todo > 0; waiting, todo = waiting+1, todo-1 {
					id++
					q := queries[int(id)%len(queries)]
					q = append(in[:0], q...)
					q[0], q[1] = byte(id>>8), byte(id)
					sent[id] = time.Now()
					conn.Write(q)
				}
				conn.SetReadDeadline(time.Now().Add(5 * time.Second))
				n, err := conn.Read(in)
				if err != nil || n < headerLen || in[7] != 1 {
					b.Errorf("reply %x, %v", in[:n], err)
					return
				}
				took[c] = append(took[c], time.Since(sent[uint16(in[0])<<8|uint16(in[1])]))
				waiting--
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(took...)
	slices.Sort(all)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "queries/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkHandle is the work for one query, without the socket.
func BenchmarkHandle(b *testing.B) {
	r := newRig(b, "ok.test")
	r.up.set(b, "ok.test.", "A", "ok.test. 300 A 192.0.2.1")
	r.lookupA("ok.test.")
	for _, name := range []string{"ok.test.", "evil.test."} {
		pkt, err := asks(name, dns.TypeA).Pack()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			out := make([]byte, 2048)
			b.ReportAllocs()
			for b.Loop() {
				if reply, _ := r.handle(pkt, out, client{}); reply == nil {
					b.Fatal("no reply")
				}
			}
		})
	}
}
