package firewall

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	labnet "github.com/agent-init/agent-init/internal/netns"
)

// serveAs has a server of uid's at ap until the returned function is called. Over
// TCP it reads, answers and closes at once: what is left to send is of a socket
// without an owner.
func serveAs(t *testing.T, network string, ap netip.AddrPort, uid int) (stop func()) {
	t.Helper()
	opened, done := make(chan io.Closer, 1), make(chan struct{})
	var failed error
	serve := func() {
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			failed = e
			opened <- nil
			return
		}
		buf := make([]byte, 2048)
		if network == "udp" {
			c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(ap))
			failed = err
			opened <- c
			for err == nil {
				n, from, e := c.ReadFromUDPAddrPort(buf)
				if errors.Is(e, net.ErrClosed) {
					return
				}
				c.WriteToUDPAddrPort(append([]byte("from here "), buf[:n]...), from)
			}
			return
		}
		l, err := net.Listen("tcp", ap.String())
		failed = err
		opened <- l
		for err == nil {
			c, e := l.Accept()
			if e != nil {
				return
			}
			c.SetDeadline(time.Now().Add(time.Second))
			n, _ := c.Read(buf)
			c.Write(append([]byte("from here "), buf[:n]...))
			c.Close()
		}
	}
	go func() {
		defer close(done)
		_ = labnet.OnThread(func() error { serve(); return nil })
	}()
	c := <-opened
	must(t, failed)
	return func() { c.Close(); <-done }
}

// Nobody but who may answers for a DNS server of this namespace: with sockets that
// are open or closed, over UDP and TCP, behind the engine's address translation
// and without it.
func TestKernelAnswers(t *testing.T) {
	if !onBackends(t) {
		return
	}
	l := newLab(t)
	l.serve(53)
	echo(t, netip.MustParseAddrPort("127.0.0.1:4053"), "guard ")
	echo(t, netip.MustParseAddrPort("[::1]:6053"), "guard ")
	engine(t, enginesVariant())
	engineAt, engineReal := netip.MustParseAddrPort("127.0.0.11:53"), netip.MustParseAddrPort("127.0.0.11:40053")
	vouched, vouched6 := netip.MustParseAddrPort("127.0.0.1:5353"), at(near6, 5353)
	own, loop := at(near4, 5354), netip.MustParseAddrPort("[::1]:5355")
	c := Config{
		GuardUID: guardUID, GuardGID: guardGID, AgentUID: agentUID, DNSPort4: 4053, DNSPort6: 6053, DropGroup: group,
		Upstreams: []netip.AddrPort{engineAt, vouched, vouched6, own, loop, at(other4, 53)},
		Here:      []netip.AddrPort{vouched, vouched6},
	}
	shared := c
	shared.Here, shared.AnyAgent = nil, true
	for _, mode := range []struct {
		name   string
		config Config
		heard  map[netip.AddrPort]map[int]bool
	}{
		{"the agent's uid is known", c, map[netip.AddrPort]map[int]bool{
			engineAt: {0: true, 33: true}, vouched: {0: true, 33: true}, vouched6: {0: true, 33: true},
		}},
		{"it is not", shared, map[netip.AddrPort]map[int]bool{engineAt: {0: true, 33: true, agentUID: true}}},
	} {
		f := open(t, Options{})
		apply(t, f, mode.config)
		must(t, f.Verify(context.Background()))
		for _, network := range []string{"udp", "tcp"} {
			for _, asked := range c.Upstreams[:5] {
				real := asked
				if asked == engineAt {
					real = engineReal
				}
				for _, uid := range []int{0, 33, agentUID} {
					stop := serveAs(t, network, real, uid)
					want, wait := mode.heard[asked][uid], answerTime
					if !want { // much is dropped, and nothing would end the wait
						wait = 200 * time.Millisecond
					}
					got, err := askFor(wait, network, asked, guardUID, "q")
					stop()
					if (got == "from here q") != want {
						t.Errorf("%s: %s %v answered by uid %d: %q, %v; want it heard: %t", mode.name, network, asked, uid, got, err, want)
					}
				}
			}
		}
		reached(t, "udp", at(other4, 53), guardUID)
		must(t, f.Close())
	}
}

// A server of this namespace can't be vouched for where no rule knows the agent.
func TestAnswersPlan(t *testing.T) {
	here := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:5353")}
	for name, c := range map[string]Config{
		"any agent": {GuardUID: 1, GuardGID: 1, Upstreams: here, Here: here, AnyAgent: true},
		"reduced":   {GuardUID: 1, GuardGID: 1, Upstreams: here, Here: here, Reduced: true},
	} {
		if _, err := NewPlan(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
