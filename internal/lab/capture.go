package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/netns"
)

const (
	snapLen   = 2048
	perPacket = 200       // what a Packet costs besides its frame
	maxBytes  = 256 << 20 // of all frames; then the capture counts losses instead
	// etherMarker is IEEE's "local experimental ethertype 1".
	etherMarker = 0x88b5
)

// capture records what arrives at the internet's end of a veth pair.
type capture struct {
	in     *os.File // AF_PACKET socket there
	marker int      // AF_PACKET socket in the box, for the barrier; -1 when closed
	done   chan struct{}

	mu      sync.Mutex
	packets []Packet
	bytes   int
	lost    uint64
	marks   map[uint64]chan struct{}
	next    uint64
}

func startCapture(internet, box *netns.NS, link string) (*capture, error) {
	c := &capture{done: make(chan struct{}), marker: -1, marks: make(map[uint64]chan struct{})}
	if err := internet.Do(func() error {
		fd, err := packetSocket(link, unix.ETH_P_ALL)
		if err != nil {
			return err
		}
		c.in = os.NewFile(uintptr(fd), "capture")
		for _, opt := range []struct{ level, name, value int }{
			{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
			{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64 << 20},
		} {
			if err := unix.SetsockoptInt(fd, opt.level, opt.name, opt.value); err != nil {
				return errors.Join(fmt.Errorf("set up packet socket: %w", err), c.in.Close())
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if err := box.Do(func() (err error) {
		c.marker, err = packetSocket("eth0", 0) // protocol 0: receives nothing
		return err
	}); err != nil {
		return nil, errors.Join(err, c.in.Close())
	}
	go c.read()
	return c, nil
}

func packetSocket(link string, proto uint16) (int, error) {
	ifi, err := net.InterfaceByName(link)
	if err != nil {
		return -1, err
	}
	swapped := proto<<8 | proto>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open packet socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: swapped, Ifindex: ifi.Index}); err != nil {
		return -1, errors.Join(fmt.Errorf("bind packet socket: %w", err), unix.Close(fd))
	}
	return fd, nil
}

func (c *capture) read() {
	defer close(c.done)
	buf := make([]byte, snapLen)
	for {
		n, err := c.in.Read(buf)
		if err != nil {
			if errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENOBUFS) {
				continue // told once when the link goes; the socket lives on
			}
			return
		}
		frame := append([]byte(nil), buf[:n]...)
		p := parsePacket(frame, time.Now())
		c.mu.Lock()
		switch {
		case p.EtherType == etherMarker && n >= ethHeader+8:
			id := binary.BigEndian.Uint64(frame[ethHeader:])
			if ch, ok := c.marks[id]; ok {
				close(ch)
				delete(c.marks, id)
			}
		case c.bytes+n+perPacket > maxBytes:
			c.lost++
		default:
			c.bytes += n + perPacket
			c.packets = append(c.packets, p)
		}
		c.mu.Unlock()
	}
}

// barrier returns when all that had left the box before is recorded: it sends
// a frame along the same way, from each CPU since each has a queue of its own.
func (c *capture) barrier() error {
	return netns.OnThread(func() error {
		var all unix.CPUSet
		if err := unix.SchedGetaffinity(0, &all); err != nil {
			return fmt.Errorf("read cpu affinity: %w", err)
		}
		for cpu := range len(all) * 64 {
			if !all.IsSet(cpu) {
				continue
			}
			var one unix.CPUSet
			one.Set(cpu)
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				return fmt.Errorf("move to cpu %d: %w", cpu, err)
			}
			if err := c.mark(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *capture) mark() error {
	ch := make(chan struct{})
	c.mu.Lock()
	c.next++
	id := c.next
	c.marks[id] = ch
	c.mu.Unlock()
	frame := make([]byte, 60)
	copy(frame, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	binary.BigEndian.PutUint16(frame[12:], etherMarker)
	binary.BigEndian.PutUint64(frame[ethHeader:], id)
	if _, err := unix.Write(c.marker, frame); err != nil {
		return fmt.Errorf("send marker frame: %w", err)
	}
	select {
	case <-ch:
		return nil
	case <-time.After(Patience):
		return errors.New("marker frame doesn't arrive: capture is deaf")
	}
}

// dropped adds what the kernel threw away (reading resets its counter).
func (c *capture) dropped() (uint64, error) {
	raw, err := c.in.SyscallConn()
	if err != nil {
		return 0, err
	}
	var stats *unix.TpacketStats
	if cerr := raw.Control(func(fd uintptr) {
		stats, err = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	}); cerr != nil || err != nil {
		return 0, errors.Join(cerr, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost += uint64(stats.Drops)
	return c.lost, nil
}

func (c *capture) close() error {
	err := errors.Join(c.in.Close(), unix.Close(c.marker))
	<-c.done
	return err
}

// Packets returns the frames that have left the box since the start or
// ForgetPackets and that every filter selects, oldest first. All that was sent
// before the call is in; if anything was lost on the way to the record, the
// test fails, since then an empty answer proves nothing.
func (b *Box) Packets(filters ...Filter) []Packet {
	b.lab.tb.Helper()
	return b.packets(false, filters)
}

// TakePackets is Packets, and forgets in the same moment what it has looked at: for a test that goes on for long, and of
// which no packet is to go by unseen.
func (b *Box) TakePackets(filters ...Filter) []Packet {
	b.lab.tb.Helper()
	return b.packets(true, filters)
}

func (b *Box) packets(forget bool, filters []Filter) []Packet {
	b.lab.tb.Helper()
	if err := b.capture.barrier(); err != nil {
		b.lab.tb.Fatalf("lab: packets: %v", err)
	}
	if lost, err := b.capture.dropped(); err != nil || lost > 0 {
		b.lab.tb.Fatalf("lab: packets: capture lost %d packets (%v)", lost, err)
	}
	b.capture.mu.Lock()
	defer b.capture.mu.Unlock()
	var found []Packet
next:
	for i := range b.capture.packets {
		p := &b.capture.packets[i]
		for _, f := range filters {
			if !f(p) {
				continue next
			}
		}
		found = append(found, *p)
	}
	if forget {
		b.capture.packets, b.capture.bytes = nil, 0
	}
	return found
}

// ForgetPackets empties the record of what left the box before the call.
func (b *Box) ForgetPackets() {
	b.lab.tb.Helper()
	if err := b.capture.barrier(); err != nil {
		b.lab.tb.Fatalf("lab: forget packets: %v", err)
	}
	b.capture.mu.Lock()
	defer b.capture.mu.Unlock()
	b.capture.packets, b.capture.bytes, b.capture.lost = nil, 0, 0
}
