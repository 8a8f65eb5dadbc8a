package scorecard

import (
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestTable: the table is the whole catalogue, in order, and the tests that it
// names exist.
func TestTable(t *testing.T) {
	exists := allTests(t, "../../..")
	attacks := Attacks()
	if len(attacks) < 76 {
		t.Errorf("%d attacks, want the 76 of the catalogue and what was found later", len(attacks))
	}
	last := map[string]int{} // by series
	for _, a := range attacks {
		series := a.ID[:1]
		if n := number(t, a.ID); n <= last[series] || series == "E" && n != last[series]+1 {
			t.Errorf("%s stands behind %s%02d", a.ID, series, last[series])
		} else {
			last[series] = n
		}
		if len(a.Try) == 0 && (len(a.Tests) == 0 || a.Why == "") && a.Limit == "" {
			t.Errorf("%s is neither tried, nor said to be open, nor tested with a reason why it isn't tried", a.ID)
		}
		for _, line := range slices.Concat(a.Try, a.Watch) {
			operation(line, (&Setting{Box: &lab.Box{}}).values(&a)) // panics on what no setting knows
		}
		for _, name := range a.Tests {
			if !exists[name] {
				t.Errorf("%s names %s, which is no test", a.ID, name)
			}
		}
	}
}

func number(t *testing.T, id string) int {
	t.Helper()
	n, err := strconv.Atoi(id[1:])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOwnContainer: behind a gateway, what the agent's own container lets it do is not tried, and is no leak; frames are
// tried.
func TestOwnContainer(t *testing.T) {
	s := &Setting{Box: &lab.Box{}, Apart: true, Workspace: "/workspace", Frames: func(a netip.Addr) string { return datagram(nil, nil, a, a) }}
	frames, own := 0, 0
	for _, a := range Attacks() {
		steps, why := s.steps(&a, s.values(&a))
		if !a.Own {
			continue
		}
		own++
		if len(steps) == 0 && why != ownContainer {
			t.Errorf("%s is not tried for %q", a.ID, why)
		}
		for _, step := range steps {
			if frames++; step[0] != "packet" {
				t.Errorf("%s: %v is tried", a.ID, step)
			}
		}
	}
	if frames != 2 || own < 10 {
		t.Errorf("%d attacks are about the agent's own container, with %d frames", own, frames)
	}
}

// TestDatagram: the frames are whole, or no kernel would send them on.
func TestDatagram(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for from, to := range map[string]string{"172.30.6.3": "45.31.56.1", "2001:db8::3": "2a0f:31:56::1"} {
		src, dst := netip.MustParseAddr(from), netip.MustParseAddr(to)
		frame, err := hex.DecodeString(datagram(mac, mac, src, dst))
		if err != nil {
			t.Fatal(err)
		}
		packet := frame[14:]
		udp := packet[len(packet)-12:]
		if dst.Is4() && sum16(packet[:20]) != 0 {
			t.Errorf("%s: the sum of the header is %x", to, sum16(packet[:20]))
		}
		if sum := sum16(slices.Concat(src.AsSlice(), dst.AsSlice(), []byte{0, 17, 0, 12}, udp)); sum != 0 {
			t.Errorf("%s: the sum of the datagram is %x", to, sum)
		}
	}
}

// tests are the names of the tests and fuzz targets of a directory.
func tests(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", dir, err)
	}
	names := map[string]bool{}
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && (strings.HasPrefix(fn.Name.Name, "Test") || strings.HasPrefix(fn.Name.Name, "Fuzz")) {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}

func TestOperation(t *testing.T) {
	values := map[string]string{"bad": "e01.evil.test", "gw6": ""}
	args, missing := operation(`tcp -esc 'GET {bad}\r\n' '' 1.1.1.1:80`, values)
	if want := []string{"tcp", "-esc", `GET e01.evil.test\r\n`, "", "1.1.1.1:80"}; missing != "" || fmt.Sprintf("%q", args) != fmt.Sprintf("%q", want) {
		t.Errorf("got %q", args)
	}
	if _, missing := operation("tcp [{gw6}]:80", values); missing != "gw6" {
		t.Errorf("an operation without what it needs, or %q", missing)
	}
}

// TestLabScorecardCanFail: in a container that nothing confines every attack of
// the table succeeds, so that one which is held elsewhere was held by something.
func TestLabScorecardCanFail(t *testing.T) {
	lab.Require(t)
	results, err := Run(OpenBox(t), Attacks())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		t.Logf("%s %v %v", r.Attack.ID, r.Outcome, r.Leaks)
		if len(r.Attack.Try) > 0 && !needsDefence(r.Attack.ID) && r.Outcome != Leaked && r.Outcome != Limited {
			t.Errorf("%s proves nothing: it fails without confinement too (%d operations)", r.Attack.ID, r.Tried)
		}
	}
}

// needsDefence are the attacks against what an open box doesn't have: agent-init,
// its log, programs that root starts, rules that an answer could come before, and
// an engine.
func needsDefence(id string) bool {
	return slices.Contains([]string{"E15", "E60", "E61", "E65", "E74", "E75", "X11", "X46", "X49", "X51", "K04", "K07"}, id)
}

// TestLabScorecard: agent-init holds every attack that can be held, in each of
// its modes. The other packet filters are "make scorecard".
func TestLabScorecard(t *testing.T) {
	lab.Require(t)
	binary := lab.Binary(t)
	for _, mode := range Modes() {
		t.Run(mode, func(t *testing.T) {
			results, err := Run(InBox(t, binary, mode, "nftables"), Attacks())
			if err != nil {
				t.Fatal(err)
			}
			tried, fewest := 0, 91
			if mode == "sidecar" {
				fewest = 84
			}
			for _, r := range results {
				tried += min(r.Tried, 1)
				if r.Outcome == Leaked {
					t.Errorf("%s, %s: %s", r.Attack.ID, r.Attack.Title, strings.Join(r.Leaks, "; "))
				}
			}
			if tried < fewest {
				t.Errorf("only %d attacks were tried", tried)
			}
		})
	}
}

// TestForgery: the judge of logs knows an honest one from a forged one.
func TestForgery(t *testing.T) {
	const honest = `{"seq":1,"event":"dns","name":"a\",\"event\":\"forged"}` + "\n"
	for text, want := range map[string]int{
		honest:                   0,
		honest + `{"seq":2,"eve`: 0, // being written
		honest + `{"seq":1,"event":"forged","name":"x"}` + "\n":   1,
		honest + `{"seq":1,"event":"dns","name":"forged"}` + "\n": 1,
		honest + "GET / HTTP/1.1\n":                               1,
	} {
		if got := forgery(text); len(got) != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
