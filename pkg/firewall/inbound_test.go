package firewall

import (
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A flow that is revoked does not come back as one from outside, though it ends
// at an inbound port: only what begins there is let in.
func TestKernelInboundBegins(t *testing.T) {
	if !onBackends(t) {
		return
	}
	l := newLab(t)
	var lis net.Listener
	l.onPeer(func() {
		var err error
		lis, err = net.Listen("tcp", at(far4, 443).String())
		must(t, err)
	})
	defer lis.Close()
	f := open(t, Options{})
	c := Config{Inbound: []Entry{{Proto: unix.IPPROTO_TCP, Port: 3000}, {Proto: unix.IPPROTO_TCP, Port: 3001}}}
	apply(t, f, c, leaseOf(far4, unix.IPPROTO_TCP, 443, time.Hour))
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: near4.AsSlice(), Port: 3000}, Timeout: time.Second}
	mine, err := d.Dial("tcp", at(far4, 443).String())
	must(t, err)
	defer mine.Close()
	theirs, err := lis.Accept()
	must(t, err)
	defer theirs.Close()
	if _, err := pass(mine, theirs, "before"); err != nil {
		t.Fatal(err)
	}
	must(t, f.Revoke(context.Background(), []Element{{Addr: far4, Proto: unix.IPPROTO_TCP, Port: 443}}))
	if got, err := pass(theirs, mine, "an order"); err == nil {
		t.Errorf("after its revocation: %q", got)
	}
	mine.Write([]byte("a secret"))
	l.nowhere("a secret")

	echo(t, at(near4, 3001), "")
	l.onPeer(func() { // and on no other thread, which would not be out there
		c, err := net.DialTimeout("tcp", at(near4, 3001).String(), answerTime)
		if err == nil {
			defer c.Close()
			_, err = pingFor(answerTime, c, "hello")
		}
		if err != nil {
			t.Errorf("what begins outside: %v", err)
		}
	})
}

// pass sends a message from one end of a connection to the other.
func pass(from, to net.Conn, msg string) (string, error) {
	to.SetDeadline(time.Now().Add(500 * time.Millisecond))
	if _, err := from.Write([]byte(msg)); err != nil {
		return "", err
	}
	buf := make([]byte, 100)
	n, err := to.Read(buf)
	return string(buf[:n]), err
}
