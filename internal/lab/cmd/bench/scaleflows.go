package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// own are the rows of what the keeper takes while the agent makes more of something.
type own struct{ cpu, memory *growth }

func (b *bench) owns(what string) own {
	return own{grows(what+"the keeper's processor time", aSecond), grows(what+"memory of the keeper, private and dirty", inMemory)}
}

func (b *bench) add(o own, size, pid int, meanwhile func()) {
	o.cpu.add(size, b.over(pid, meanwhile))
	o.memory.add(size, float64(b.usage(pid).private))
}

func (b *bench) tell(o own) {
	b.report.flat(o.cpu, float64(flatCPU))
	b.report.flat(o.memory, flatMemory)
}

// keeps has the agent open n connections more, as far as that goes, and returns how many there are and why no more.
func (b *bench) keeps(box *lab.Box, to string, n int) (kept int, why string) {
	c := box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", clientPath, "-client", "keep", "-n", strconv.Itoa(n), "-through", to}})
	if !c.WaitOutput("\n", lab.Patience) {
		b.Fatalf("connections could not be opened: %s", c.Wait(time.Second))
	}
	if _, err := fmt.Sscanf(c.Stdout(), "kept %d", &kept); err != nil {
		b.Fatalf("connections: %v: %s", err, c.Stdout())
	}
	_, why, _ = strings.Cut(c.Stdout(), strconv.Itoa(kept)+" ")
	return kept, strings.TrimSpace(why)
}

// scaleGate tells what connections through the name gate cost, until it takes no more.
func scaleGate(b *bench) {
	b.report.heading("Scale: connections through the gate")
	b.moreDescriptors()
	box := b.gatedBox()
	defer box.Kill()
	pid, open := b.runConfined(box).Pid(), 0
	guard := b.childPID(pid, "guard")
	memory, one := grows("memory of the guard, private and dirty", inMemory), grows("time of one more, TLS included", inTime)
	keeper := b.owns("")
	for _, n := range []int{100, 1000, 4000, 16_000} {
		kept, why := b.keeps(box, "", n-open)
		open += kept
		b.add(keeper, open, pid, rest)
		memory.add(open, float64(b.usage(guard).private))
		if open < n {
			b.report.row(memory)
			b.report.row(one)
			b.tell(keeper)
			b.report.limit("connections at once", thousands(open), fmt.Sprintf("where a process may have %s descriptors. The client: %s. The log: %s",
				thousands(b.descriptors()), why, b.lastLine(box, "too many connections")))
			return
		}
		var took time.Duration
		b.client(box, &took, "one", 30)
		one.took(open, took)
	}
	b.Errorf("%d connections are open, and no limit was reached", open)
}

// lastLine is the last of the audit log with a text.
func (b *bench) lastLine(box *lab.Box, text string) (last string) {
	data, err := box.ReadFile("/var/log/agent-init/audit.jsonl")
	if err != nil {
		b.Fatalf("%v", err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, text) {
			last, _, _ = strings.Cut(line, `,"prev"`)
		}
	}
	return last
}

// scaleConnections tells what connections cost that go past the gate, by an entry of an address.
func scaleConnections(b *bench) {
	b.report.heading("Scale: connections past the gate")
	b.moreDescriptors()
	const each = 17_000 // of a port: what one client and one server may have open
	var list bytes.Buffer
	for port := 9101; port <= 9104; port++ { // nobody stays at the last, so that its ports are free
		fmt.Fprintf(&list, "%s:%d\n", directAddr, port)
		b.serves(port)
	}
	box := b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Binds: b.clientBind(), Files: []lab.File{{Path: policyFile, Data: list.Bytes()}}})
	defer box.Kill()
	pid, open := b.runConfined(box).Pid(), 0
	one, keeper := grows("time of one more", inTime), b.owns("")
	for _, n := range []int{100, 1000, 10_000, 50_000} {
		for open < n {
			port := 9101 + open/each
			kept, why := b.keeps(box, net.JoinHostPort(directAddr, strconv.Itoa(port)), min(n-open, each-open%each))
			if open += kept; why != "<nil>" {
				b.Fatalf("no more than %d connections: %s", open, why)
			}
		}
		var took time.Duration
		b.client(box, &took, "one", 100, "-through", directAddr+":9104")
		one.took(n, took)
		b.add(keeper, n, pid, rest)
	}
	b.tell(keeper)
	b.report.row(one)
}

// serves has the internet accept what comes to a port, in a process of its own for want of descriptors.
func (b *bench) serves(port int) {
	b.lab.Claim("tcp", uint16(port))
	self, err := os.Executable()
	if err != nil {
		b.Fatalf("%v", err)
	}
	cmd := exec.Command(self, "-client", "serve", "-through", ":"+strconv.Itoa(port))
	if err := b.lab.Internet.Start(cmd); err != nil {
		b.Fatalf("%v", err)
	}
	b.Cleanup(func() { b.end(cmd) })
}

// scaleFlows tells what the flows that the agent has made cost, and whether a cut takes longer among them.
func scaleFlows(b *bench) {
	b.report.heading("Scale: flows of the agent")
	const cuts = 4 * scaleRounds
	var list bytes.Buffer
	for i := range cuts {
		name, addr := fmt.Sprintf("cut%d.test", i), fmt.Sprintf("45.30.9.%d", i)
		b.lab.DNS.SetAddrs(name, "45.30.8."+strconv.Itoa(i))
		fmt.Fprintf(&list, "%s:8443\n%s:8443\n", name, addr)
	}
	box := b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Files: []lab.File{{Path: policyFile, Data: list.Bytes()}}})
	defer box.Kill()
	p := b.runConfined(box)
	err := box.Net.Do(func() error { // else the kernel forgets them in half a minute
		return os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_udp_timeout", []byte("600"), 0)
	})
	if err != nil {
		b.Fatalf("%v", err)
	}
	keeper, name, addr := b.owns(""), grows("a name is cut off", inTime), grows("an address is cut off", inTime)
	made, cut := 0, 0
	for _, n := range []int{1000, 10_000, 100_000, 250_000} {
		for made < n {
			some := min(n-made, 50_000)
			to := fmt.Sprintf("127.%d.0.1:9", 10+made/5000) // each of these has 65,536 addresses
			if r := box.Exec(lab.Cmd{Args: []string{"agent-init", "exec", "--", "poke", "flood", "-n", strconv.Itoa(some), "-spread", strconv.Itoa(some), to}}); r.Code > 1 {
				b.Fatalf("flows: %s", r)
			}
			made += some
		}
		if got := b.flows(box); got < n*9/10 {
			b.Fatalf("%d flows, and %d were to be made", got, n)
		}
		b.add(keeper, n, p.Pid(), rest)
		var names, addrs []time.Duration
		for range scaleRounds {
			names = append(names, b.command(box, "deny", fmt.Sprintf("cut%d.test", cut))-b.command(box, "version"))
			addrs = append(addrs, b.command(box, "deny", fmt.Sprintf("45.30.9.%d", cut))-b.command(box, "version"))
			cut++
		}
		name.took(n, names...)
		addr.took(n, addrs...)
	}
	b.tell(keeper)
	b.report.row(name)
	b.report.row(addr)
}

// flows is how many the kernel tracks in a box.
func (b *bench) flows(box *lab.Box) (n int) {
	err := box.Net.Do(func() error {
		data, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if err == nil {
			_, err = fmt.Sscan(string(data), &n)
		}
		return err
	})
	if err != nil {
		b.Fatalf("%v", err)
	}
	return n
}
