package broker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/pkg/broker/authority"
	"github.com/agent-init/agent-init/pkg/policy"
)

// TestCertified: of every policy that is read, a certificate can be made for the names. Else a broker could not start, nor
// go on with its routes.
func TestCertified(t *testing.T) {
	parse := func(lines string) ([]authority.Name, error) {
		p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "p", Data: []byte(lines)}}}, allowlist.Files)
		if err != nil {
			return nil, err
		}
		return namesOf(p.Settings.Inspected), nil
	}
	read := func(names, long int) ([]authority.Name, error) {
		var lines strings.Builder
		for i := range names {
			fmt.Fprintf(&lines, "n%03d%s.%s.example read\n", i, strings.Repeat("a", long/2), strings.Repeat("b", long/2))
		}
		return parse(lines.String())
	}
	for _, name := range []string{
		"_a.example", "a_b.example", "-a.example", "a-.example", "host", "*.corp", "1.example", "a.1a", strings.Repeat("a", 63) + ".example",
		strings.Repeat("a.", 120) + "example", "bücher.example", "*._a.example", "xn--a.example", "a--b.example",
	} {
		names, err := parse(name + " read")
		if err != nil {
			continue // by check, before anything is started
		}
		a, err := authority.New(names)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := a.Leaf(names[0].Name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, long := range []int{2, 30, 110} {
		last := 0
		for n := 20; n <= 1000; n += 20 {
			names, err := read(n, long)
			if err != nil {
				if !strings.Contains(err.Error(), "fit into one certificate") {
					t.Errorf("%d names of %d letters: %v", n, long, err)
				}
				break
			}
			if _, err := authority.New(names); err != nil {
				t.Fatalf("%d names of %d letters: %v", n, long, err)
			}
			last = n
		}
		if last*(long+20) < 40_000 && last < 1000 {
			t.Errorf("no more than %d names of %d letters", last, long)
		}
	}
}
