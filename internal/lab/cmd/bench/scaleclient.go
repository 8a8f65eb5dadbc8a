package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/internal/lab"
)

// runScale is a client of section scale, or a server for it.
func runScale(what, through string, n int) (any, error) {
	switch what {
	case "names":
		return askNames(through, n)
	case "keep":
		return nil, keep(through, n)
	case "one":
		return oneMore(through, n)
	case "serve":
		return nil, serveAll(through)
	case "send":
		return send(through, n)
	case "processes":
		return nil, processes(n)
	}
	return nil, fmt.Errorf("no client %q", what)
}

// askNames asks for names, one after another: through is what they are like, and the number of the first.
func askNames(through string, n int) (a answered, err error) {
	form, first, _ := strings.Cut(through, " ")
	from, err := strconv.Atoi(first)
	if err != nil {
		return a, err
	}
	var took []time.Duration
	for i := range n {
		m := new(dns.Msg).SetQuestion(fmt.Sprintf(form, from+i)+".", dns.TypeA)
		m.SetEdns0(1232, false)
		r, d, err := (&dns.Client{Timeout: 10 * time.Second}).Exchange(m, net.JoinHostPort(lab.Upstream4.String(), "53"))
		if err != nil {
			return a, err
		}
		took, a.Said = append(took, d), dns.RcodeToString[r.Rcode]
		if o := r.IsEdns0(); o != nil {
			for _, e := range o.Option {
				a.Said += ", " + e.String()
			}
		}
	}
	a.Took = median(took)
	return a, nil
}

// connect makes a connection: through the gate if to is empty, and past it to an address.
func connect(to string) (net.Conn, error) {
	if to != "" {
		return net.DialTimeout("tcp", to, 10*time.Second)
	}
	c, err := net.DialTimeout("tcp", net.JoinHostPort(gatedAddr, "443"), 10*time.Second)
	if err != nil {
		return nil, err
	}
	if err := tls.Client(c, clientTLS()).Handshake(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// keep opens as many connections as there may be, up to n, and keeps them until it is killed.
func keep(to string, n int) error {
	var mu sync.Mutex
	var kept []net.Conn
	var failed error
	var all sync.WaitGroup
	share := make(chan struct{}, n)
	for range n {
		share <- struct{}{}
	}
	close(share)
	for range rateClients {
		all.Go(func() {
			for range share {
				c, err := connect(to)
				mu.Lock()
				if err == nil {
					kept = append(kept, c)
				} else {
					failed = cmp.Or(failed, err)
				}
				enough := failed != nil
				mu.Unlock()
				if enough {
					return
				}
			}
		})
	}
	all.Wait()
	fmt.Printf("kept %d %v\n", len(kept), failed)
	time.Sleep(time.Hour) // or until the box ends
	return kept[0].Close()
}

// oneMore says how long one connection more takes.
func oneMore(to string, n int) (time.Duration, error) {
	var took []time.Duration
	for range n {
		begun := time.Now()
		c, err := connect(to)
		if err != nil {
			return 0, err
		}
		took = append(took, time.Since(begun))
		c.Close()
	}
	return median(took), nil
}

// serveAll accepts what comes, and says nothing.
func serveAll(at string) error {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	var kept []net.Conn
	for {
		c, err := l.Accept()
		if err != nil {
			return errors.Join(err, kept[0].Close())
		}
		kept = append(kept, c)
	}
}

// sendTime is for how long a client sends.
const sendTime = 3 * time.Second

// send sends as many packets a second as it can, up to n: "names FORM" are questions for ever other names, "name NAME"
// for the same, and "packets" go to ever other addresses. It returns how many there were.
func send(what string, n int) (int, error) {
	kind, form, _ := strings.Cut(what, " ")
	c, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	go func() { _, _ = io.Copy(io.Discard, c) }() // answers
	server := &net.UDPAddr{IP: lab.Upstream4.AsSlice(), Port: 53}
	m := new(dns.Msg).SetQuestion("a.test.", dns.TypeA)
	begun, sent, salt := time.Now(), 0, os.Getpid()
	for time.Since(begun) < sendTime {
		for due := int(time.Since(begun).Seconds() * float64(n)); sent < due; sent++ {
			to, data := server, []byte("hello")
			if kind == "packets" {
				to = &net.UDPAddr{IP: net.IPv4(45, 100+byte(sent>>16), byte(sent>>8), byte(sent)), Port: 9}
			} else {
				name := form
				if kind == "names" {
					name = fmt.Sprintf(form, fmt.Sprintf("%d-%d", salt, sent))
				}
				m.Id, m.Question[0].Name = dns.Id(), name+"."
				if data, err = m.Pack(); err != nil {
					return 0, err
				}
			}
			_, _ = c.WriteTo(data, to) // refused, as it is to be
		}
		time.Sleep(200 * time.Microsecond)
	}
	return sent, nil
}

// processes starts so many, and keeps them until it is killed.
func processes(n int) error {
	for range n {
		if err := exec.Command("sleep", "3600").Start(); err != nil {
			return err
		}
	}
	fmt.Println("kept", n)
	time.Sleep(time.Hour) // or until the box ends
	return nil
}
