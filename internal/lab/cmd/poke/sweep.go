package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// numbers reads a list such as "1-1024,2375".
func numbers(s string, limit int) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		lo, err := number(first)
		if err != nil {
			return nil, err
		}
		hi, err := number(last)
		if err != nil {
			return nil, err
		}
		if lo < 0 || lo > hi || hi > limit {
			return nil, usage("%q is no range up to %d", part, limit)
		}
		for n := lo; n <= hi; n++ {
			out = append(out, n)
		}
	}
	return out, nil
}

func scan(args []string) (detail, error) {
	fs := flags("scan")
	udp := fs.Bool("udp", false, "datagrams; a port is open if it answers")
	c := fs.Int("c", 32, "at once")
	timeout := fs.Duration("timeout", time.Second, "for each")
	a, err := parse(fs, args, 2)
	if err != nil {
		return nil, err
	}
	ports, err := numbers(a[1], 65535)
	if err != nil {
		return nil, err
	}
	network := "tcp"
	if *udp {
		network = "udp"
	}
	var t tally
	var mu sync.Mutex
	open := []int{}
	begin := time.Now()
	many(len(ports), *c, func(_, i int) {
		start := time.Now()
		err := answers(network, net.JoinHostPort(a[0], strconv.Itoa(ports[i])), *timeout)
		outcome := "open"
		if op := new(net.OpError); errors.As(err, &op) {
			outcome = op.Err.Error()
		} else if err != nil {
			outcome = err.Error()
		} else {
			mu.Lock()
			open = append(open, ports[i])
			mu.Unlock()
		}
		t.add(outcome, err != nil, time.Since(start))
	})
	slices.Sort(open)
	out := t.detail(time.Since(begin))
	out["open"] = open
	if len(open) == 0 {
		return out, errors.New("no port is open")
	}
	return out, nil
}

// answers connects and, over UDP, waits for an answer.
func answers(network, addr string, timeout time.Duration) error {
	c, err := net.DialTimeout(network, addr, timeout)
	if err != nil || network == "tcp" {
		if c != nil {
			c.Close()
		}
		return err
	}
	defer c.Close()
	return exchange(c, []byte("poke"), timeout, detail{})
}

func recv(args []string) (detail, error) {
	fs := flags("recv")
	period := fs.Duration("for", 10*time.Second, "at most")
	to := fs.String("to", "", "send a datagram there first, from the first ADDR")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	var sockets []net.PacketConn
	deadline := func(t time.Time) {
		for _, pc := range sockets {
			_ = pc.SetReadDeadline(t)
		}
	}
	for _, addr := range a {
		pc, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp", addr)
		if err != nil {
			return nil, err
		}
		defer pc.Close()
		sockets = append(sockets, pc)
	}
	if *to != "" {
		target, err := netip.ParseAddrPort(*to)
		if err != nil {
			return nil, usage("-to: %v", err)
		}
		if _, err := sockets[0].WriteTo([]byte("poke"), net.UDPAddrFromAddrPort(target)); err != nil {
			return nil, err
		}
	}
	var mu sync.Mutex
	var readers sync.WaitGroup
	datagrams, ended := []string{}, false
	deadline(time.Now().Add(*period))
	for i, pc := range sockets {
		readers.Go(func() {
			buf := make([]byte, 65536)
			for {
				n, from, err := pc.ReadFrom(buf)
				if err != nil {
					return
				}
				mu.Lock()
				if text := string(buf[:n]); text != "end" {
					datagrams = append(datagrams, fmt.Sprintf("%s < %s %s", a[i], from, text))
				} else {
					ended = true
					deadline(time.Now().Add(200 * time.Millisecond)) // for what the others have in their queues
				}
				mu.Unlock()
			}
		})
	}
	readers.Wait()
	out := detail{"datagrams": datagrams, "ended": ended}
	if len(datagrams) == 0 {
		return out, errors.New("nothing came but perhaps the end")
	}
	return out, nil
}

func join(args []string) (detail, error) {
	fs := flags("join")
	hold := fs.Duration("hold", 0, "stay a member so long")
	a, err := parse(fs, args, 2)
	if err != nil {
		return nil, err
	}
	group, err := netip.ParseAddr(a[0])
	if err != nil {
		return nil, usage("%v", err)
	}
	ifi, err := net.InterfaceByName(a[1])
	if err != nil {
		return nil, err
	}
	network := "udp4"
	if group.Is6() {
		network = "udp6"
	}
	pc, err := new(net.ListenConfig).ListenPacket(context.Background(), network, ":0")
	if err != nil {
		return nil, err
	}
	defer pc.Close()
	member := &net.UDPAddr{IP: group.AsSlice()}
	if group.Is4() {
		err = ipv4.NewPacketConn(pc).JoinGroup(ifi, member)
	} else {
		err = ipv6.NewPacketConn(pc).JoinGroup(ifi, member)
	}
	if err == nil {
		time.Sleep(*hold)
	}
	return nil, err
}
