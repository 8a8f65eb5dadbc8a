package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/state"
)

const (
	fullLeases = 65_536 // of a container, unless the policy has less
	moreNames  = 30     // that are asked for, one after another, to see how long one takes
)

// numbered gives the name n17.… an address of its own.
func numbered(q lab.Query) *dns.Msg {
	m, n := new(dns.Msg).SetReply(q.Msg), 0
	if _, err := fmt.Sscanf(q.Name, "n%d.", &n); err == nil && q.Type == dns.TypeA {
		addr := netip.AddrFrom4([4]byte{45, 48 + byte(n>>16), byte(n >> 8), byte(n)})
		m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300}, A: addr.AsSlice()})
	}
	return m
}

// scaleLeases tells what names cost that have addresses, up to as many as the kernel's sets hold. Each is on one port, so
// that it makes one lease. The policy has as many names.
func scaleLeases(b *bench) {
	b.report.heading("Scale: leases")
	b.lab.DNS.Set("*.leased.test", lab.Answer{Func: numbered})
	b.lab.DNS.Set("*.more.test", lab.Answer{Func: numbered})
	list := func(n int) []byte {
		var w bytes.Buffer
		w.WriteString("*.more.test:8443\n")
		for i := range n {
			fmt.Fprintf(&w, "n%d.leased.test:8443\n", i+fullLeases)
		}
		return w.Bytes()
	}
	box := b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Binds: b.clientBind(), Files: []lab.File{{Path: policyFile, Data: list(0)},
		{Path: "/etc/agent-init/policy.yaml", Data: []byte("limits: {new_names_per_wildcard_per_minute: 100000}\n")}}})
	p := b.runConfined(box)
	defer box.Kill()

	more, status, reload := grows("time of one more, DNS included", inTime), grows("`agent-init status`, a process of its own", inTime), grows("reload", inTime)
	keeper, guard := grows("memory of the keeper, private and dirty", inMemory), grows("memory of the guard, private and dirty", inMemory)
	cpu := grows("the keeper's processor time at rest", aSecond)
	asked := 0
	ask := func(n int) (a answered) {
		b.client(box, &a, "names", n, "-through", fmt.Sprintf("n%%d.more.test %d", asked))
		asked += n
		return a
	}
	for _, n := range []int{100, 1000, 10_000, fullLeases - 200} {
		b.reloads(box, list(n))
		b.leased(box, n+asked)
		time.Sleep(idleTime / 2)
		more.took(n, ask(moreNames).Took)
		cpu.add(n, b.over(p.Pid(), rest))
		keeper.add(n, float64(b.usage(p.Pid()).private))
		guard.add(n, float64(b.usage(b.childPID(p.Pid(), "guard")).private))
		var statuses, reloads []time.Duration
		for i := range scaleRounds {
			statuses = append(statuses, b.command(box, "status"))
			if i == 0 || n <= 10_000 {
				reloads = append(reloads, b.reloads(box, append(list(n), fmt.Sprintf("10.0.0.%d:8443\n", i)...)))
			}
		}
		status.took(n, statuses...)
		reload.took(n, reloads...)
	}
	for _, g := range []*growth{more, status, reload, keeper, guard, cpu} {
		b.report.row(g)
	}
	b.report.limit("leases", thousands(fullLeases), "the next name is answered "+ask(300).Said)
}

// answered is what became of names that a client asked for.
type answered struct {
	Took time.Duration // of one, the median
	Said string        // in the last answer
}

// leased waits until so many names have leases. It reads what is written each second in which one changes: the status
// tells of them every ten.
func (b *bench) leased(box *lab.Box, n int) {
	var r lease.Report
	for deadline := time.Now().Add(resolveAll); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		data, err := box.ReadFile("/run/agent-init/" + state.LeasesFile)
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err != nil {
			b.Fatalf("read the leases: %v", err)
		}
		if len(r.Names)+r.More >= n {
			return
		}
	}
	b.Fatalf("only %d of %d names were leased", len(r.Names)+r.More, n)
}
