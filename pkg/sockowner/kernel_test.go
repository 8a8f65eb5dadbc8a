package sockowner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/netns"
)

const childVariable = "SOCKOWNER_TEST_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(childVariable); what != "" {
		do := func() error { return child(what) }
		if what == family {
			do = fill
		}
		if err := do(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child opens a socket of each kind, says where they are, and waits.
func child(to string) error {
	for _, open := range []func() (net.Addr, error){
		func() (net.Addr, error) { return local(net.Dial("tcp", to)) },
		func() (net.Addr, error) { return local(net.Dial("udp", to)) },
		func() (net.Addr, error) { // not connected, of IPv6, and able to send over IPv4
			c, err := net.ListenPacket("udp", ":0")
			if err != nil {
				return nil, err
			}
			return c.LocalAddr(), nil
		},
	} {
		a, err := open()
		if err != nil {
			return err
		}
		fmt.Println(a)
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func local(c net.Conn, err error) (net.Addr, error) {
	if err != nil {
		return nil, err
	}
	return c.LocalAddr(), nil
}

const testerUID, testerGID = 54321, 54322

// start runs a child under those ids, and returns its pid and its sockets.
func start(t *testing.T, to netip.AddrPort, uid, gid uint32) (pid int, addrs []netip.AddrPort) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{childVariable + "=" + to.String()}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	lines := bufio.NewScanner(out)
	for range 3 {
		if !lines.Scan() {
			t.Fatal("the child ended")
		}
		a, err := netip.ParseAddrPort(lines.Text())
		must(t, err)
		addrs = append(addrs, a)
	}
	return cmd.Process.Pid, addrs
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// finder asks in the network namespace of the calling goroutine.
func finder(t testing.TB) *Finder {
	t.Helper()
	f, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return NewFinder(f)
}

func loopback(t *testing.T) {
	t.Helper()
	netns.Enter(t)
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
}

// TestKernelOwner finds the sockets of another user's process, over both
// families, and what has them open.
func TestKernelOwner(t *testing.T) {
	loopback(t)
	s, err := NewScanner(testerUID, testerGID)
	must(t, err)
	for _, host := range []string{"127.0.0.1", "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		must(t, err)
		defer l.Close()
		to := l.Addr().(*net.TCPAddr).AddrPort()
		pid, addrs := start(t, to, testerUID, testerGID)
		self, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		must(t, err)
		nobody := netip.MustParseAddrPort("192.0.2.1:1")
		for what, tc := range map[string]struct {
			proto         uint8
			local, remote netip.AddrPort
			none          bool
		}{
			"TCP":                          {unix.IPPROTO_TCP, addrs[0], to, false},
			"TCP to elsewhere":             {unix.IPPROTO_TCP, addrs[0], nobody, true},
			"UDP":                          {unix.IPPROTO_UDP, addrs[1], to, false},
			"UDP to whomever":              {unix.IPPROTO_UDP, addrs[1], netip.AddrPort{}, false},
			"UDP to elsewhere":             {unix.IPPROTO_UDP, addrs[1], nobody, true},
			"UDP from another address":     {unix.IPPROTO_UDP, netip.AddrPortFrom(nobody.Addr(), addrs[1].Port()), to, true},
			"UDP, not connected":           {unix.IPPROTO_UDP, netip.AddrPortFrom(to.Addr(), addrs[2].Port()), nobody, false},
			"UDP, not connected, whomever": {unix.IPPROTO_UDP, netip.AddrPortFrom(to.Addr(), addrs[2].Port()), netip.AddrPort{}, false},
		} {
			found, err := finder(t).Find(tc.proto, tc.local, tc.remote)
			if tc.none {
				if !errors.Is(err, ErrNone) {
					t.Errorf("%s, %s: found %+v, %v", host, what, found, err)
				}
				continue
			}
			if err != nil || found.UID != testerUID {
				t.Errorf("%s, %s: found %+v, %v", host, what, found, err)
				continue
			}
			if p, ok, took := s.Holder(found.Inode); !ok || took <= 0 || p.PID != pid || p.Name != strings.TrimSpace(string(self)) {
				t.Errorf("%s, %s: %+v, %v has it, and not %d", host, what, p, ok, pid)
			}
		}
	}
}

// TestKernelScannerSeesOneUser: what others have open is not to be found, not
// even what root has.
func TestKernelScannerSeesOneUser(t *testing.T) {
	loopback(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	s, err := NewScanner(testerUID, testerGID)
	must(t, err)
	for _, ids := range [][2]uint32{{0, 0}, {testerUID + 1, testerGID}, {testerUID, testerGID + 1}} {
		pid, addrs := start(t, l.Addr().(*net.TCPAddr).AddrPort(), ids[0], ids[1])
		found, err := finder(t).Find(unix.IPPROTO_UDP, addrs[1], netip.AddrPort{})
		if err != nil || found.UID != ids[0] {
			t.Fatalf("found %+v, %v", found, err)
		}
		if p, ok, _ := s.Holder(found.Inode); ok {
			t.Errorf("%v: it sees %+v", ids, p)
		}
		// Root looks at this process alone: what else runs here may have more files open than one look takes.
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		must(t, err)
		if !slices.ContainsFunc(links, func(link string) bool {
			to, err := os.Readlink(link)
			return err == nil && to == fmt.Sprintf("socket:[%d]", found.Inode)
		}) {
			t.Errorf("%v proves nothing: the process does not have the socket", ids)
		}
	}
}
