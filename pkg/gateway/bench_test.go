package gateway

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/netns"
	"github.com/agent-init/agent-init/pkg/audit"
)

// BenchmarkSetup is the time from connecting to the first byte of the answer,
// directly and through the gate, in turns.
func BenchmarkSetup(b *testing.B) {
	r := newRig(b, nil)
	hello := helloFor("ok.test")
	r.server(siteTLS, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, len(hello)))
		c.Write([]byte{21, 3, 3, 0, 2, 2, 40})
	})
	once := func(addr string) time.Duration {
		began := time.Now()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		c.Write(hello)
		if _, err := io.ReadFull(c, make([]byte, 7)); err != nil {
			b.Fatal(err)
		}
		d := time.Since(began)
		c.Close()
		return d
	}
	var direct, gate []time.Duration
	for b.Loop() {
		direct = append(direct, once(r.servers[siteTLS]))
		gate = append(gate, once(r.listeners[siteTLS].Addr().String()))
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Microseconds())
	}
	b.ReportMetric(median(direct), "µs-direct")
	b.ReportMetric(median(gate), "µs-gate")
	b.ReportMetric(median(gate)-median(direct), "µs-added")
}

// BenchmarkBulk moves 1 GiB directly and through the gate, in turns, over
// loopback: both hops of the gate compete for what the direct one has alone.
func BenchmarkBulk(b *testing.B) { bulk(b, newRig(b, nil), "127.0.0.1:0") }

// BenchmarkKernelBulk is BenchmarkBulk where the server is in another network
// namespace, behind a virtual cable, as it would be for a container.
func BenchmarkKernelBulk(b *testing.B) {
	netns.Enter(b)
	here, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(here)
	run(b, "", "ip", "link", "set", "lo", "up")
	r := newRig(b, func(c *settings) {
		dial := c.dial
		c.dial = func(ctx context.Context, to netip.AddrPort) (conn *net.TCPConn, err error) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // for good: the thread ends with the goroutine
				if err = unix.Setns(here, unix.CLONE_NEWNET); err == nil {
					conn, err = dial(ctx, to)
				}
			}()
			<-done
			return conn, err
		}
	})
	far, end := make(chan int), make(chan struct{})
	defer close(end)
	ready := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			b.Error(err)
		}
		far <- unix.Gettid()
		<-ready
		run(b, "", "ip", "addr", "add", "10.77.0.2/24", "dev", "far0")
		run(b, "", "ip", "link", "set", "far0", "up")
		r.serveOn("10.77.0.2:0", bulkServer)
		far <- 0
		<-end
	}()
	run(b, "", "ip", "link", "add", "near0", "type", "veth", "peer", "name", "far0", "netns", strconv.Itoa(<-far))
	run(b, "", "ip", "addr", "add", "10.77.0.1/24", "dev", "near0")
	run(b, "", "ip", "link", "set", "near0", "up")
	close(ready)
	<-far
	bulk(b, r, "")
}

const bulkSize = 1 << 30

// bulkServer answers a hello with one of its own, and 1 GiB.
func bulkServer(c *net.TCPConn) {
	io.ReadFull(c, make([]byte, len(helloFor("ok.test"))))
	c.Write(records(append([]byte{2, 0, 0, 80, 3, 3}, make([]byte, 80)...), 1<<14))
	block := make([]byte, 1<<20)
	for range bulkSize / len(block) {
		if _, err := c.Write(block); err != nil {
			return
		}
	}
}

func bulk(b *testing.B, r *rig, listenOn string) {
	const size = bulkSize
	hello := helloFor("ok.test")
	if listenOn != "" {
		r.serveOn(listenOn, bulkServer)
	}
	buf := make([]byte, 1<<20)
	once := func(addr string) time.Duration {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		c.Write(hello)
		began := time.Now()
		n := 0
		for n < size {
			m, err := c.Read(buf)
			if n += m; err != nil {
				b.Fatal(n, err)
			}
		}
		return time.Since(began)
	}
	var direct, gate time.Duration
	n := 0
	for b.Loop() {
		direct += once(r.servers[siteTLS])
		gate += once(r.listeners[siteTLS].Addr().String())
		n++
	}
	b.ReportMetric(float64(n)*size*8/direct.Seconds()/1e9, "Gbit/s-direct")
	b.ReportMetric(float64(n)*size*8/gate.Seconds()/1e9, "Gbit/s-gate")
	b.ReportMetric(direct.Seconds()/gate.Seconds(), "ratio")
}

// BenchmarkIdle is the memory that 5000 relays (fewer if descriptors are
// scarce) take which say nothing. The two
// ends are bare descriptors, so that what is measured is the gate.
func BenchmarkIdle(b *testing.B) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		b.Fatal(err)
	}
	count := min(5000, int(limit.Cur-100)/4)
	r := newRig(b, func(c *settings) { c.Connections = 10000; c.Record = audit.Discard })
	l := listen(b)
	r.behind(siteTLS, l)
	lf, err := l.File()
	if err != nil {
		b.Fatal(err)
	}
	defer lf.Close()
	unix.SetNonblock(int(lf.Fd()), false)
	hello := helloFor("ok.test")
	answer := records(append([]byte{2, 0, 0, 80, 3, 3}, make([]byte, 80)...), 1<<14)
	to := r.listeners[siteTLS].Addr().(*net.TCPAddr)
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		var fds []int
		before, goBefore := memory(b)
		for range count {
			c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			check(err)
			check(unix.Connect(c, &unix.SockaddrInet4{Addr: [4]byte(to.IP.To4()), Port: to.Port}))
			_, err = unix.Write(c, hello)
			check(err)
			s, _, err := unix.Accept4(int(lf.Fd()), unix.SOCK_CLOEXEC)
			check(err)
			_, err = unix.Read(s, make([]byte, len(hello)))
			check(err)
			_, err = unix.Write(s, answer)
			check(err)
			_, err = unix.Read(c, make([]byte, len(answer)))
			check(err)
			fds = append(fds, c, s)
		}
		after, goAfter := memory(b)
		if open := r.Stats().Open; open != count {
			b.Fatalf("%d relays", open)
		}
		b.ReportMetric(float64(after-before)/float64(count), "B-rss/relay")
		b.ReportMetric(float64(goAfter-goBefore)/float64(count), "B-go/relay")
		b.ReportMetric(float64(count), "relays")
		for _, fd := range fds {
			unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			unix.Close(fd)
		}
		for r.Stats().Open > 0 {
			runtime.Gosched()
		}
	}
}

// memory returns the resident set, and what Go has in use.
func memory(b *testing.B) (rss, inUse int64) {
	for range 3 {
		runtime.GC() // stacks shrink by half at a time
	}
	debug.FreeOSMemory()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.ParseInt(string(bytes.Fields(statm)[1]), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return pages * int64(os.Getpagesize()), int64(m.HeapInuse + m.StackInuse)
}
