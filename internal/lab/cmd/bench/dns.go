package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

const (
	dnsNames   = 100
	dnsRounds  = 5
	dnsSeconds = 2
	dnsClients = 10
	dnsInAir   = 50     // queries under way while the rate is measured: the server is never idle
	dnsRate    = 20_000 // queries per second while latency is measured
	masqPort   = 5353
)

// dnsServer is one server under load, and where in its box to ask it.
type dnsServer struct {
	label string
	box   *lab.Box
	addr  string
	port  int
	pid   int

	rates    []float64 // answers per second, as many as it can
	costs    []float64 // of the server's CPU meanwhile, microseconds for each answer
	p50, p99 []float64 // at dnsRate, in milliseconds, of each round
	offered  []float64 // what came out of dnsRate
}

// measureDNS compares the guard with dnsmasq. Each has its own box with the same
// upstream server; dnsperf runs in the box too, as the agent's uid.
func measureDNS(b *bench) {
	var queries strings.Builder
	for i := range dnsNames {
		fmt.Fprintf(&queries, "%s A\n%s AAAA\n", nameOf(i), nameOf(i))
	}
	file := lab.File{Path: "/etc/queries", Data: []byte(queries.String())}

	guardBox := b.confined(dnsNames, file)
	confined := b.runConfined(guardBox)
	defer guardBox.Kill()
	masqBox := b.lab.NewBox(lab.BoxOptions{
		Caps: append(lab.DefaultCaps(), "NET_RAW", "NET_BIND_SERVICE"), Files: []lab.File{file},
	})
	dnsmasq := masqBox.Start(lab.Cmd{Args: []string{"sh", "-c", dnsmasqStart, "sh",
		lab.Upstream4.String(), strconv.Itoa(lab.AgentUID), strconv.Itoa(masqPort)}})
	defer masqBox.Kill()

	guard := b.childPID(confined.Pid(), "guard")
	upstream := lab.Upstream4.String()
	servers := []*dnsServer{
		{label: "dnsmasq, asked on its own port", box: masqBox, pid: dnsmasq.Pid(), addr: "127.0.0.1", port: masqPort},
		{label: "the guard, asked on its own port", box: guardBox, pid: guard, addr: "127.0.0.1", port: b.guardPort(guardBox)},
		{label: "dnsmasq, port 53 redirected", box: masqBox, pid: dnsmasq.Pid(), addr: upstream, port: 53},
		{label: "the guard, port 53 redirected", box: guardBox, pid: guard, addr: upstream, port: 53},
	}
	b.lab.DNS.SetLog(true)
	for _, s := range servers {
		b.warm(s)
	}
	b.lab.DNS.Forget()
	for range dnsRounds {
		for _, s := range servers {
			used := b.cpuTime(s.pid)
			out := b.dnsperf(s, "-q", strconv.Itoa(dnsInAir))
			used = b.cpuTime(s.pid) - used
			s.rates = append(s.rates, number(b, out, "Queries per second:"))
			s.costs = append(s.costs, float64(used.Microseconds())/number(b, out, "Queries completed:"))
		}
	}
	for range dnsRounds {
		for _, s := range servers {
			b.latency(s)
		}
	}
	// What had to be asked upstream was not answered from a cache.
	if n := len(b.lab.Queries("bench.test")); n > 0 {
		b.Errorf("%d queries went upstream while cached answers were measured: %s", n, tail(confined.Stderr()))
	}
	b.lab.DNS.SetLog(false)
	b.lab.DNS.Forget()

	r := b.report
	r.heading("DNS: cached answers of %d names, A and AAAA in turn, dnsperf with %d clients and %d queries under way",
		dnsNames, dnsClients, dnsInAir)
	for _, s := range servers {
		r.figure(s.label, thousands(int(median(s.rates)))+"/s", "").
			note("%s…%s; %.1f µs of its CPU for each", thousands(int(slices.Min(s.rates))), thousands(int(slices.Max(s.rates))), median(s.costs))
	}
	for i, path := range []string{"own port", "port 53 redirected"} {
		x := ratio(median(servers[2*i+1].rates), median(servers[2*i].rates))
		r.figure("the guard : dnsmasq, "+path, times(x), "≥ 1×").met(x >= 1)
	}
	r.heading("DNS: time to a cached answer at %s queries per second", thousands(dnsRate))
	for _, s := range servers {
		p99 := median(s.p99)
		f := r.figure(s.label+", p99", fmt.Sprintf("%.3f ms", p99), "").
			note("%.3f…%.3f; p50 %.3f ms; %s/s answered", slices.Min(s.p99), slices.Max(s.p99), median(s.p50), thousands(int(median(s.offered))))
		if s.pid == guard {
			f.goal = "< 1 ms"
			f.met(p99 < 1 && median(s.offered) > 0.95*dnsRate)
		}
	}
}

// dnsmasqStart runs dnsmasq as its users do: each answer's addresses go into a
// set, which the rules let through, and answers are cached. It has the rules
// because looking at them is a part of every answer's cost.
// Arguments: the upstream server, the agent's uid, the port.
const dnsmasqStart = `set -e
ipset create allowed4 hash:ip timeout 3600
ipset create allowed6 hash:ip family inet6 timeout 3600
for family in 4 6; do
  iptables=iptables
  [ $family = 4 ] || iptables=ip6tables
  for chain in INPUT OUTPUT; do
    $iptables -A $chain -m state --state ESTABLISHED,RELATED -j ACCEPT
    $iptables -P $chain DROP
  done
  $iptables -A INPUT -i lo -j ACCEPT
  $iptables -A OUTPUT -o lo -j ACCEPT
  $iptables -A OUTPUT -p udp --dport 53 -j ACCEPT
  $iptables -A OUTPUT -m set --match-set allowed$family dst -j ACCEPT
done
iptables -A OUTPUT -d 127.0.0.1 -j ACCEPT # what is redirected still has its first interface
iptables -t nat -A OUTPUT -p udp --dport 53 -m owner --uid-owner "$2" -j REDIRECT --to-ports "$3"
exec dnsmasq --keep-in-foreground --user=root --conf-file=/dev/null --no-resolv --no-hosts --server="$1" \
  --listen-address=127.0.0.1 --port="$3" --bind-interfaces --cache-size=10000 --ipset=/bench.test/allowed4,allowed6 --pid-file=`

// runConfined starts agent-init with an agent that does nothing, and waits until
// that runs.
func (b *bench) runConfined(box *lab.Box, flags ...string) *lab.Process {
	args := append(append([]string{"agent-init", "run"}, flags...), "--", "sh", "-c", "echo the agent runs; exec sleep infinity")
	p := box.Start(lab.Cmd{Args: args})
	if !p.WaitOutput("the agent runs", 30*time.Second) {
		b.Fatalf("the agent did not start: %s", p.Wait(time.Second))
	}
	return p
}

// warm asks until each name is answered, and so cached.
func (b *bench) warm(s *dnsServer) {
	var out string
	var asked []lab.Query
	for range 20 {
		b.lab.DNS.Forget()
		out = b.perf(s, "-n", "1", "-Q", "2000").Stdout
		asked = b.lab.Queries("bench.test")
		if len(asked) == 0 && strings.Contains(out, fmt.Sprintf("NOERROR %d (100.00%%)", 2*dnsNames)) {
			return
		}
	}
	b.Fatalf("%s does not answer for all names from its cache: it asked %d times: %s", s.label, len(asked), out)
}

// dnsperf loads s for a while; every query must have been answered, and well.
func (b *bench) dnsperf(s *dnsServer, args ...string) string {
	r := b.perf(s, append(args, "-l", strconv.Itoa(dnsSeconds))...)
	b.checkAnswers(s, r.Stdout)
	return r.Stdout
}

func (b *bench) checkAnswers(s *dnsServer, out string) {
	_, codes, _ := strings.Cut(out, "Response codes:")
	sent, done, good := number(b, out, "Queries sent:"), number(b, out, "Queries completed:"), number(b, codes, "NOERROR")
	if done < 0.999*sent || good < done {
		b.Fatalf("%s: %.0f of %.0f queries answered, %.0f well", s.label, done, sent, good)
	}
}

func (b *bench) perf(s *dnsServer, args ...string) lab.Result {
	args = append([]string{"dnsperf", "-s", s.addr, "-p", strconv.Itoa(s.port), "-d", "/etc/queries",
		"-c", strconv.Itoa(dnsClients), "-T", "1", "-t", "2"}, args...)
	r := s.box.Exec(lab.Cmd{Args: args, UID: lab.AgentUID})
	if r.Code != 0 {
		b.Fatalf("dnsperf against %s: %s", s.label, r)
	}
	return r
}

// latency has dnsperf write down every query's time for a second, into a file of the box so
// that reading it disturbs nothing.
func (b *bench) latency(s *dnsServer) {
	const out = "/tmp/dnsperf.out"
	script := fmt.Sprintf("dnsperf -v -s %s -p %d -d /etc/queries -c %d -T 1 -t 2 -Q %d -l 1 > %s",
		s.addr, s.port, dnsClients, dnsRate, out)
	r := s.box.Exec(lab.Cmd{Args: []string{"sh", "-c", script}, UID: lab.AgentUID})
	data, err := s.box.ReadFile(out)
	if r.Code != 0 || err != nil {
		b.Fatalf("dnsperf against %s: %s, %v", s.label, r, err)
	}
	b.checkAnswers(s, string(data))
	s.offered = append(s.offered, number(b, string(data), "Queries per second:"))
	var took []float64
	for line := range strings.Lines(string(data)) {
		// "> NOERROR host1.bench.test A 0.000123"
		if f := strings.Fields(line); len(f) == 5 && f[0] == ">" {
			seconds, err := strconv.ParseFloat(f[4], 64)
			if err != nil {
				b.Fatalf("dnsperf's line %q: %v", line, err)
			}
			took = append(took, 1000*seconds)
		}
	}
	slices.Sort(took)
	s.p50, s.p99 = append(s.p50, percentile(took, 0.5)), append(s.p99, percentile(took, 0.99))
}

// number is the first number behind label in what dnsperf prints.
func number(b *bench, out, label string) float64 {
	_, rest, ok := strings.Cut(out, label)
	fields := strings.Fields(rest)
	if !ok || len(fields) == 0 {
		b.Fatalf("dnsperf printed no %q: %s", label, out)
	}
	x, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		b.Fatalf("dnsperf's %q: %v", label, err)
	}
	return x
}

// guardPort finds the guard's loopback port: the only UDP socket there.
func (b *bench) guardPort(box *lab.Box) int {
	var data []byte
	if err := box.Net.Do(func() (err error) {
		data, err = os.ReadFile("/proc/thread-self/net/udp")
		return err
	}); err != nil {
		b.Fatalf("find the guard's port: %v", err)
	}
	for line := range strings.Lines(string(data)) {
		// "42: 0100007F:9C5A 00000000:0000 …", in hexadecimal (proc(5), /proc/net/udp)
		if _, rest, ok := strings.Cut(line, " 0100007F:"); ok {
			port, err := strconv.ParseUint(rest[:4], 16, 16)
			if err != nil {
				b.Fatalf("find the guard's port: %v", err)
			}
			return int(port)
		}
	}
	b.Fatalf("the guard has no socket on 127.0.0.1: %s", data)
	return 0
}
