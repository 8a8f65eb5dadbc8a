package policy

import (
	"fmt"
	"strings"
	"testing"
)

// longList makes a list of n lines of all kinds.
func longList(n int) *Bundle {
	var b strings.Builder
	for i := range n {
		switch i % 10 {
		case 0:
			fmt.Fprintf(&b, "*.wild-%d.example.com\n", i)
		case 1:
			fmt.Fprintf(&b, "host-%d.corp.example:8443 private  # a comment\n", i)
		case 2:
			fmt.Fprintf(&b, "10.%d.%d.%d:443\n", i>>16&255, i>>8&255, i&255)
		case 3:
			fmt.Fprintf(&b, "!bad-%d.example.net\n", i)
		default:
			fmt.Fprintf(&b, "host-%d.region-%d.example.org\n", i, i%7)
		}
	}
	return &Bundle{Files: []File{{Name: "allowlist.txt", Data: []byte(b.String())}}}
}

func benchmarkParse(b *testing.B, n int) {
	bundle := longList(n)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(bundle, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse10k(b *testing.B)  { benchmarkParse(b, 10_000) }
func BenchmarkParse100k(b *testing.B) { benchmarkParse(b, 100_000) }

// BenchmarkDecide shows that a lookup costs the same whatever the length of the list.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		p, err := Parse(longList(n), nil)
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range []string{"host-4.region-4.example.org", "a.b.c.wild-0.example.com", "a.b.c.d.nowhere.example"} {
			b.Run(fmt.Sprintf("%d/%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					p.Decide(name, Port{TCP, 443})
				}
			})
		}
	}
}

// BenchmarkWay is asked of every connection.
func BenchmarkWay(b *testing.B) {
	for name, more := range map[string]string{"plain": "", "inspected": "*.corp.example GET /\nbig.example direct\nx.example:8443 tls\n"} {
		bundle := longList(1000)
		bundle.Files[0].Data = append(bundle.Files[0].Data, more...)
		p, err := Parse(bundle, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Way("host-4.region-4.example.org", HTTPS)
			}
		})
	}
}

// TestParseAllocations holds what a plain entry costs to read: whatever looks for faults in it does so when it is one.
func TestParseAllocations(t *testing.T) {
	const lines = 1000
	bundle := longList(lines)
	each := testing.AllocsPerRun(5, func() {
		if _, err := Parse(bundle, nil); err != nil {
			t.Fatal(err)
		}
	}) / lines
	if each > 4 {
		t.Errorf("%.1f allocations for an entry", each)
	}
}
