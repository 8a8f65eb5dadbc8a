package main

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// options are flags that tcp, udp and connect share.
type options struct {
	send    string
	timeout time.Duration
	opts    []sockopt
}

type sockopt struct {
	level, name, value int
	bytes              string // if not empty, instead of value
}

func (o *options) register(fs *flag.FlagSet, send string) {
	fs.StringVar(&o.send, "send", send, "what to send")
	inHex := ""
	fs.Func("hex", "what to send, in hex; again: what follows it", func(s string) error {
		b, err := hex.DecodeString(s)
		inHex += string(b)
		o.send = inHex
		return err
	})
	fs.Func("esc", "what to send, with the escapes of a string of Go or C", func(s string) (err error) {
		o.send, err = strconv.Unquote(`"` + s + `"`)
		return err
	})
	fs.DurationVar(&o.timeout, "timeout", 3*time.Second, "time for each step")
	fs.Func("opt", "LEVEL:NAME:VALUE", func(s string) error {
		var v sockopt
		parts := strings.Split(s, ":")
		if len(parts) != 3 {
			return errors.New("needs three parts")
		}
		numbers := []*int{&v.level, &v.name, &v.value}
		if text, ok := strings.CutPrefix(parts[2], "hex"); ok {
			b, err := hex.DecodeString(text)
			if err != nil {
				return err
			}
			v.bytes, numbers = string(b), numbers[:2]
		}
		for i, n := range numbers {
			var err error
			if *n, err = number(parts[i]); err != nil {
				return err
			}
		}
		o.opts = append(o.opts, v)
		return nil
	})
}

func (o *options) apply(fd int) error {
	for _, v := range o.opts {
		var err error
		if v.bytes != "" {
			err = unix.SetsockoptString(fd, v.level, v.name, v.bytes)
		} else {
			err = unix.SetsockoptInt(fd, v.level, v.name, v.value)
		}
		if err != nil {
			return fmt.Errorf("setsockopt %d:%d: %w", v.level, v.name, err)
		}
	}
	return nil
}

func (o *options) dialer() *net.Dialer {
	return &net.Dialer{Timeout: o.timeout, Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = o.apply(int(fd)) }), err)
	}}
}

func tcp(args []string) (detail, error) {
	var o options
	fs := flags("tcp")
	o.register(fs, "")
	mptcp := fs.Bool("mptcp", false, "multipath TCP")
	hold := fs.Duration("hold", 0, "keep sending so long")
	piece := fs.Int("piece", 0, "send so many bytes at a time")
	pause := fs.Duration("pause", time.Millisecond, "with -piece: between pieces")
	all := fs.Bool("all", false, "read to the end")
	oneWay := fs.Bool("oneway", false, "with -hold: don't wait for answers")
	from := fs.Int("from", 0, "source port")
	source := fs.String("source", "", "source address and port")
	by := fs.String("proxy", "", "by this proxy")
	bare := fs.Bool("bare", false, "with -proxy: speak to the proxy itself")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	d := o.dialer()
	if *from != 0 {
		d.LocalAddr = &net.TCPAddr{Port: *from}
	}
	if *source != "" {
		ap, err := netip.ParseAddrPort(*source)
		if err != nil {
			return nil, usage("-source: %v", err)
		}
		d.LocalAddr = net.TCPAddrFromAddrPort(ap)
	}
	d.SetMultipathTCP(*mptcp)
	dial := func() (net.Conn, error) { return d.Dial("tcp", a[0]) }
	if *by != "" {
		proxy, err := proxyURL(*by)
		if err != nil {
			return nil, err
		}
		dial = func() (net.Conn, error) { return dialProxy(d, proxy, a[0]) }
		if *bare {
			dial = func() (net.Conn, error) { return d.Dial("tcp", proxy.Host) }
			o.send = toProxy(proxy, o.send)
		}
	}
	c, err := dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	out := detail{"local": c.LocalAddr().String()}
	if *mptcp {
		out["mptcp"], _ = c.(*net.TCPConn).MultipathTCP()
	}
	if *hold > 0 {
		return out, keepTalking(c, *hold, o.timeout, *oneWay, out)
	}
	if o.send == "" && !*all {
		return out, nil
	}
	if err := c.SetDeadline(time.Now().Add(o.timeout)); err != nil {
		return out, err
	}
	if err := sendPieces(c, []byte(o.send), *piece, *pause); err != nil {
		return out, err
	}
	if *all {
		return out, receiveAll(c, out)
	}
	return out, receive(c, out)
}

// sendPieces sends so many bytes at a time, each piece in a segment of its own.
func sendPieces(c net.Conn, send []byte, size int, pause time.Duration) error {
	if size <= 0 {
		size = len(send)
	}
	for len(send) > 0 {
		n := min(size, len(send))
		if _, err := c.Write(send[:n]); err != nil {
			return err
		}
		if send = send[n:]; len(send) > 0 {
			time.Sleep(pause) // else the kernel would gather them
		}
	}
	return nil
}

// receiveAll reads to the end; "end" is what that was.
func receiveAll(c net.Conn, out detail) error {
	got, err := io.ReadAll(io.LimitReader(c, 1<<20))
	out["received"], out["end"] = string(got), "orderly"
	if err != nil {
		out["end"] = err.Error()
	} else {
		err = io.EOF
	}
	if len(got) > 0 {
		return answer(got)
	}
	return err
}

// keepTalking sends a byte every 100 ms and expects each one back, unless oneWay.
func keepTalking(c net.Conn, hold, timeout time.Duration, oneWay bool, out detail) error {
	begin := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for time.Since(begin) < hold {
		var err error
		if oneWay {
			_, err = c.Write([]byte("."))
		} else {
			err = exchange(c, []byte("."), timeout, detail{})
		}
		out["lived_ms"] = time.Since(begin).Milliseconds()
		if err != nil {
			return err
		}
		<-tick.C
	}
	return nil
}

func exchange(c net.Conn, send []byte, timeout time.Duration, out detail) error {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := c.Write(send); err != nil {
		return err
	}
	return receive(c, out)
}

func receive(c net.Conn, out detail) error {
	buf := make([]byte, 65536)
	n, err := c.Read(buf)
	out["received"] = string(buf[:n])
	if n > 0 {
		return answer(buf[:n])
	}
	return err
}

// answer is nil but for the name gate's own to a ClientHello: the alert access_denied (RFC 8446, section 6).
func answer(got []byte) error {
	if string(got) == "\x15\x03\x03\x00\x02\x02\x31" {
		return errors.New("an alert of TLS: access denied")
	}
	return nil
}

func udp(args []string) (detail, error) {
	var o options
	fs := flags("udp")
	o.register(fs, "poke")
	noReply := fs.Bool("noreply", false, "don't wait for an answer")
	from := fs.Int("from", 0, "source port")
	source := fs.String("source", "", "source address and port")
	size := fs.Int("size", 0, "pad to so many bytes")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	d := o.dialer()
	apply := d.Control
	d.Control = func(network, addr string, c syscall.RawConn) error {
		var err error
		return errors.Join(apply(network, addr, c), c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
		}), err)
	}
	if *from > 0 {
		d.LocalAddr = &net.UDPAddr{Port: *from}
	}
	if *source != "" {
		ap, err := netip.ParseAddrPort(*source)
		if err != nil {
			return nil, usage("-source: %v", err)
		}
		d.LocalAddr = net.UDPAddrFromAddrPort(ap)
	}
	c, err := d.Dial("udp", a[0])
	if err != nil {
		return nil, err
	}
	defer c.Close()
	out := detail{"local": c.LocalAddr().String()}
	send := []byte(o.send)
	if *size > len(send) {
		send = append(send, make([]byte, *size-len(send))...)
	}
	if *noReply {
		_, err := c.Write(send)
		return out, err
	}
	return out, exchange(c, send, o.timeout, out)
}

func listen(args []string) (detail, error) {
	fs := flags("listen")
	period := fs.Duration("for", 5*time.Second, "how long")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	return serve(a[0], *period, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

func relay(args []string) (detail, error) {
	fs := flags("relay")
	period := fs.Duration("for", 5*time.Second, "how long")
	a, err := parse(fs, args, 2)
	if err != nil {
		return nil, err
	}
	return serve(a[0], *period, func(c net.Conn) {
		t, err := net.DialTimeout("tcp", a[1], time.Minute)
		if err != nil {
			return
		}
		defer t.Close()
		go func() {
			defer t.Close()
			_, _ = io.Copy(t, c)
		}()
		_, _ = io.Copy(c, t)
	})
}

func serve(addr string, period time.Duration, each func(net.Conn)) (detail, error) {
	ctx, cancel := context.WithTimeout(context.Background(), period)
	defer cancel()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	var peers []string
	for {
		c, err := l.Accept()
		if err != nil {
			break
		}
		peers = append(peers, c.RemoteAddr().String())
		go func() {
			defer c.Close()
			each(c)
		}()
	}
	out := detail{"peers": peers}
	if len(peers) == 0 {
		return out, errors.New("nobody connected")
	}
	return out, nil
}

// sockaddr translates a literal for a socket of family.
func sockaddr(family int, s string) (unix.Sockaddr, error) {
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		return nil, usage("%v", err)
	}
	if family == unix.AF_INET {
		if !ap.Addr().Is4() {
			return nil, usage("%s isn't IPv4", s)
		}
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}, nil
	}
	sa := &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}
	if zone := ap.Addr().Zone(); zone != "" {
		ifi, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, err
		}
		sa.ZoneId = uint32(ifi.Index)
	}
	return sa, nil
}
