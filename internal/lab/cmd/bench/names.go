package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/agent-init/agent-init/internal/lab"
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
	return []lab.File{{Path: "/etc/agent-init/allowlist.txt", Data: []byte(w.String())}}
}

// confined makes a box whose agent-init has an allowlist of n names.
func (b *bench) confined(n int, files ...lab.File) *lab.Box {
	return b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Files: append(allowlist(n), files...)})
}
