package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/state"
)

const (
	policyFile  = "/etc/agent-init/allowlist.txt"
	imageBundle = "/etc/ssl/certs/ca-certificates.crt"
	resolveAll  = 3 * time.Minute
)

// maxNames is the longest allowlist that is measured.
const maxNames = 10_000

func nameOf(i int) string { return fmt.Sprintf("host%d.bench.test", i) }

// serveNames gives each name an address of its own in either family, valid for
// as long as anything here takes.
func (b *bench) serveNames() {
	for i := range maxNames {
		hi, lo := byte(i>>8), byte(i)
		b.lab.DNS.Set(nameOf(i), lab.Answer{
			Addrs: []netip.Addr{
				netip.AddrFrom4([4]byte{45, 40, hi, lo}),
				netip.AddrFrom16([16]byte{0x2a, 0x0f, 0, 0x40, 14: hi, 15: lo}),
			},
			TTL: 3600,
		})
	}
	b.lab.DNS.SetLog(false)
}

// allowlist has n exact names, the first of which is required.
func allowlist(n int) []lab.File {
	var w strings.Builder
	for i := range n {
		w.WriteString(nameOf(i))
		if i == 0 {
			w.WriteString(" required")
		}
		w.WriteByte('\n')
	}
	return []lab.File{{Path: policyFile, Data: []byte(w.String())}}
}

// confined makes a box whose agent-init has an allowlist of n names.
func (b *bench) confined(n int, files ...lab.File) *lab.Box {
	return b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Files: append(allowlist(n), files...)})
}

// runConfined starts agent-init with an agent that does nothing, and waits until that runs.
func (b *bench) runConfined(box *lab.Box, flags ...string) *lab.Process {
	args := append(append([]string{"agent-init", "run"}, flags...), "--", "sh", "-c", "echo the agent runs; exec sleep infinity")
	p := box.Start(lab.Cmd{Args: args})
	b.Cleanup(box.Kill)
	if !p.WaitOutput("the agent runs", 30*time.Second) {
		b.Fatalf("the agent did not start: %s", p.Wait(time.Second))
	}
	return p
}

// numbered gives the name n17.… an address of its own.
func numbered(q lab.Query) *dns.Msg {
	m, n := new(dns.Msg).SetReply(q.Msg), 0
	if _, err := fmt.Sscanf(q.Name, "n%d.", &n); err == nil && q.Type == dns.TypeA {
		addr := netip.AddrFrom4([4]byte{45, 48 + byte(n>>16), byte(n >> 8), byte(n)})
		m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300}, A: addr.AsSlice()})
	}
	return m
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
