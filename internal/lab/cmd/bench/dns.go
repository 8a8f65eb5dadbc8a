package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/internal/lab"
)

const (
	dnsNames   = 100
	dnsSeconds = 2
	dnsClients = 10
	dnsInAir   = 50     // queries under way while the rate is measured: the server is never idle
	dnsRate    = 20_000 // queries per second while latency is measured
	masqPort   = 5353
)

// resolver has an agent's questions answered, and its cache warm.
type resolver struct {
	b      *bench
	box    *lab.Box
	server *lab.Process
}

// ofGuard measures the guard. It and dnsmasq have the same upstream server, and answer at the address that resolv.conf
// names, whose port 53 the kernel redirects.
func ofGuard(measure func(resolver) float64) func(*bench) float64 {
	return func(b *bench) float64 {
		box := b.confined(dnsNames, questions())
		return resolver{b, box, b.runConfined(box)}.cached(measure)
	}
}

func ofDnsmasq(measure func(resolver) float64) func(*bench) float64 {
	return func(b *bench) float64 {
		box := b.lab.NewBox(lab.BoxOptions{Caps: append(lab.DefaultCaps(), "NET_RAW", "NET_BIND_SERVICE"), Files: []lab.File{questions()}})
		args := []string{"sh", "-c", dnsmasqStart, "sh", lab.Upstream4.String(), strconv.Itoa(lab.AgentUID), strconv.Itoa(masqPort)}
		p := box.Start(lab.Cmd{Args: args})
		b.Cleanup(box.Kill)
		return resolver{b, box, p}.cached(measure)
	}
}

func questions() lab.File {
	var w strings.Builder
	for i := range dnsNames {
		fmt.Fprintf(&w, "%s A\n%s AAAA\n", nameOf(i), nameOf(i))
	}
	return lab.File{Path: "/etc/queries", Data: []byte(w.String())}
}

// cached measures once each name is answered, and so cached. What is asked upstream after that was not cached.
func (r resolver) cached(measure func(resolver) float64) float64 {
	r.b.lab.DNS.SetLog(true)
	defer r.b.lab.DNS.SetLog(false)
	defer r.b.lab.DNS.Forget()
	for range 20 {
		r.b.lab.DNS.Forget()
		out := r.perf("-n", "1", "-Q", "2000")
		if len(r.b.lab.Queries("bench.test")) > 0 || !strings.Contains(out, fmt.Sprintf("NOERROR %d (100.00%%)", 2*dnsNames)) {
			continue
		}
		v := measure(r)
		if n := len(r.b.lab.Queries("bench.test")); n > 0 {
			r.b.Errorf("%d queries went upstream while cached answers were measured: %s", n, r.server.Stderr())
		}
		return v
	}
	r.b.Fatalf("not all names are answered from the cache")
	return 0
}

// answers is how many come in a second.
func answers(r resolver) float64 {
	out := r.perf("-q", strconv.Itoa(dnsInAir), "-l", strconv.Itoa(dnsSeconds))
	r.check(out)
	return after(r.b, out, "Queries per second:")
}

// latency is the 99th percentile of the milliseconds to an answer. dnsperf writes down every query's time, into a file of
// the box so that reading it disturbs nothing.
func latency(r resolver) float64 {
	const out = "/tmp/dnsperf.out"
	script := fmt.Sprintf("dnsperf -v -s %s -p 53 -d /etc/queries -c %d -T 1 -t 2 -Q %d -l 1 > %s", lab.Upstream4, dnsClients, dnsRate, out)
	ran := r.box.Exec(lab.Cmd{Args: []string{"sh", "-c", script}, UID: lab.AgentUID})
	data, err := r.box.ReadFile(out)
	if ran.Code != 0 || err != nil {
		r.b.Fatalf("dnsperf: %s, %v", ran, err)
	}
	r.check(string(data))
	if offered := after(r.b, string(data), "Queries per second:"); offered < 0.95*dnsRate {
		r.b.Errorf("dnsperf asked %.0f times a second, not %d", offered, dnsRate)
	}
	var took []float64
	for line := range strings.Lines(string(data)) {
		// "> NOERROR host1.bench.test A 0.000123"
		if f := strings.Fields(line); len(f) == 5 && f[0] == ">" {
			seconds, err := strconv.ParseFloat(f[4], 64)
			if err != nil {
				r.b.Fatalf("dnsperf's line %q: %v", line, err)
			}
			took = append(took, 1000*seconds)
		}
	}
	slices.Sort(took)
	return percentile(took, 0.99)
}

// check wants every query answered, and well.
func (r resolver) check(out string) {
	_, codes, _ := strings.Cut(out, "Response codes:")
	sent, done, good := after(r.b, out, "Queries sent:"), after(r.b, out, "Queries completed:"), after(r.b, codes, "NOERROR")
	if done < 0.999*sent || good < done {
		r.b.Fatalf("%.0f of %.0f queries answered, %.0f well", done, sent, good)
	}
}

func (r resolver) perf(args ...string) string {
	args = append([]string{"dnsperf", "-s", lab.Upstream4.String(), "-p", "53", "-d", "/etc/queries",
		"-c", strconv.Itoa(dnsClients), "-T", "1", "-t", "2"}, args...)
	ran := r.box.Exec(lab.Cmd{Args: args, UID: lab.AgentUID})
	if ran.Code != 0 {
		r.b.Fatalf("dnsperf: %s", ran)
	}
	return ran.Stdout
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

// after is the first number behind label in what dnsperf prints.
func after(b *bench, out, label string) float64 {
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
