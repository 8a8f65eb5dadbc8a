package gate

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestHalfOpenConnectionsMakeRoom, rig.Everywhere)

// TestHalfOpenConnectionsMakeRoom: connections to the gate that say nothing, or half of
// something, very slowly, keep nobody from being served: the oldest of those that
// are not judged yet make room.
func TestHalfOpenConnectionsMakeRoom(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	w.Works("resolve", "ok.test")
	ok4, _ := rig.Named("ok.test")
	floods := []*lab.Process{
		w.Launch("poke", "idle", "-n", "3000", "-hold", "8s", rig.At(ok4, 443)),
		w.Launch("poke", "idle", "-n", "3000", "-hold", "8s", rig.At(ok4, 80)),
	}
	for range 20 { // and some that say a byte now and then
		floods = append(floods, w.Launch("poke", "tcp", "-piece", "1", "-pause", "200ms", "-timeout", "20s",
			"-hex", hex.EncodeToString(hello(t, "ok.test", nil)), rig.At(ok4, 443)))
	}
	served := 0
	for flooding := true; flooding; served++ {
		select {
		case <-floods[0].Done():
			flooding = false
		default:
		}
		w.Works("http", "-timeout", "20s", "https://ok.test/")
		w.Works("http", "-timeout", "20s", "http://ok.test/")
	}
	for _, f := range floods {
		f.Wait(time.Minute)
	}
	if p, err := lab.ParsePoke(floods[0].Stdout()); err != nil || p.Detail["n"] != 3000.0 {
		t.Errorf("proves nothing, no flood: %v: %s", err, p)
	}
	t.Logf("%d pairs of requests were served meanwhile", served)
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy after it: %v", s["why"])
	}
	w.Closed()
}

// TestUrgentByteHidesNoName: a byte of urgent data may be read in its place, or not.
// What the gate judges by is what the server gets: no urgency goes on, and no
// name that differs by that byte.
func TestUrgentByteHidesNoName(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	w.Works("resolve", "ok.test")
	ok4, _ := rig.Named("ok.test")
	open := w.Beside(lab.BoxOptions{})
	w.Lab.Web.Forget()
	w.Lab.ForgetConns()
	w.Box.ForgetPackets()
	const before = "GET /x19 HTTP/1.1\r\nHost: "
	for i, c := range []struct{ host, kept string }{
		{"Xok.test", "ok.test"}, {"ok.tesXt", "ok.test"}, // allowed without the byte
		{"evil.tesXt", "evil.test"}, {"Xevil.test", "evil.test"}, // denied with it and without it
		{"ok.test.Xevil.test", "ok.test.evil.test"},
	} {
		text := before + c.host + "\r\nConnection: close\r\n\r\n"
		args := []string{"urgent", "-at", fmt.Sprint(len(before) + strings.IndexByte(c.host, 'X')), "-timeout", "2s",
			"-hex", hex.EncodeToString([]byte(text)), rig.At(ok4, 80)}
		if i == 0 { // the far side must be able to tell
			v := rig.Verdict(t, w.AsAgent(open, args...))
			if n := len(w.Lab.Web.Requests(c.kept)); n != 1 {
				t.Fatalf("proves nothing: %d requests: %s", n, v)
			}
			urgent := func(p *lab.Packet) bool { return p.Proto == unix.IPPROTO_TCP && p.TCPFlags&0x20 != 0 }
			if len(open.Packets(urgent)) == 0 {
				t.Fatal("proves nothing: no urgent data was sent")
			}
			w.Lab.Web.Forget()
		}
		w.Poke(args...)
	}
	// Within the hello of TLS: one byte of the name.
	raw := hello(t, "evil.test", nil)
	at443 := bytes.Index(raw, []byte("evil.test"))
	w.Poke("urgent", "-at", fmt.Sprint(at443), "-timeout", "2s", "-hex", hex.EncodeToString(raw), rig.At(ok4, 443))
	for _, r := range w.Lab.Web.Requests() {
		if r.Host != "ok.test" {
			t.Errorf("a request for %q arrived", r.Host)
		}
	}
	for _, h := range w.Lab.Web.Hellos() {
		t.Errorf("a handshake for %q arrived", h.SNI)
	}
	w.Sealed(func(p *lab.Packet) bool { return p.Proto == unix.IPPROTO_TCP && p.TCPFlags&0x20 != 0 })
	w.Works("http", "http://ok.test/")
}

var _ = rig.Also(TestFastOpenCarriesNothing, rig.Everywhere)

// TestFastOpenCarriesNothing: data in the first packet of a connection (TCP Fast Open)
// goes nowhere that the connection may not go, and past no judgement.
func TestFastOpenCarriesNothing(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	w.Works("resolve", "ok.test")
	ok4, ok6 := rig.Named("ok.test")
	open := w.Beside(lab.BoxOptions{})
	if rig.Verdict(t, w.AsAgent(open, "fastopen", "-send", "in the first packet", "45.31.20.1:8443")); len(open.Packets(lab.ToAddr("45.31.20.1"),
		func(p *lab.Packet) bool { return p.TCPFlags&0x02 != 0 && bytes.Contains(p.Raw, []byte("in the first")) })) == 0 {
		t.Fatal("proves nothing: the first packet has no data")
	}
	w.Lab.Web.Forget()
	w.Lab.ForgetConns()
	w.Box.ForgetPackets()
	for _, to := range []string{"45.31.20.1:443", "45.31.20.1:8443", "[2a0f:31:20::1]:443", rig.At(ok4, 8443), rig.At(ok6, 22)} {
		w.Blocked("fastopen", "-timeout", "1s", "-send", "evil.test", to)
	}
	w.Blocked("fastopen", "-timeout", "2s", "-hex", hex.EncodeToString(hello(t, "evil.test", nil)), rig.At(ok4, 443))
	w.Poke("fastopen", "-timeout", "2s", "-send", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", rig.At(ok4, 80))
	w.Poke("fastopen", "-timeout", "2s", "-send", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", rig.At(ok6, 80))
	for _, c := range w.Lab.Conns() {
		if bytes.Contains(c.Received, []byte("evil.test")) {
			t.Errorf("it arrived at %s: %q", c.Dst, c.Received)
		}
	}
	w.Sealed(func(p *lab.Packet) bool { return bytes.Contains(p.Raw, []byte("evil.test")) })
	w.Sealed(lab.ToAddr("45.31.20.1"))
	w.Sealed(lab.ToAddr("2a0f:31:20::1"))
	// Where an address is allowed as it is, it may.
	w.Works("fastopen", "-send", "hello", "45.30.9.9:8443")
}

var _ = rig.Also(TestAnnouncedAddressIsJudged, rig.OverXtables)

// TestAnnouncedAddressIsJudged: a server that is allowed announces further addresses
// of its own (MPTCP, RFC 8684, ADD_ADDR), and the kernel of the container would
// connect to them by itself, on nobody's behalf.
func TestAnnouncedAddressIsJudged(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	ip := func(args ...string) func() error {
		return func() error {
			if out, err := exec.Command("ip", append([]string{"mptcp"}, args...)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip mptcp %v: %w: %s", args, err, out)
			}
			return nil
		}
	}
	const announced = "45.31.21.1"
	if err := w.Lab.Internet.Do(ip("endpoint", "add", announced, "dev", "lo", "signal")); err != nil {
		mustrun.Lacks(t, "%v", err)
	}
	rig.Must(t, w.Lab.Internet.Do(ip("limits", "set", "subflow", "8", "add_addr_accepted", "8")))
	w.Lab.Claim("tcp", 8443)
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	var l net.Listener
	rig.Must(t, w.Lab.Internet.Do(func() (err error) {
		l, err = lc.Listen(t.Context(), "tcp4", "0.0.0.0:8443")
		return err
	}))
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 4096)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					if _, err := c.Write(buf[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	for _, b := range []*lab.Box{open, w.Box} {
		rig.Must(t, b.Net.Do(ip("limits", "set", "subflow", "8", "add_addr_accepted", "8"))) // by root, from outside
		b.ForgetPackets()
		if v := rig.Verdict(t, w.AsAgent(b, "tcp", "-mptcp", "-hold", "3s", "45.30.9.9:8443")); !v.OK || v.Detail["mptcp"] != true {
			t.Errorf("open box: %t: not a connection of MPTCP: %s", b == open, v)
		}
		if b == open && len(b.Packets(lab.ToAddr(announced))) == 0 {
			t.Fatal("proves nothing: the announced address is not connected to")
		}
	}
	w.Sealed(lab.ToAddr(announced))
}
