package grants

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// wish is a policy as a person would say it: entries that allow or deny, of files
// and of grants. What denies wins.
type wish struct {
	files  map[string]bool // entry: allowed, or denied
	grants map[string]bool
	ends   map[string]time.Time // of grants that end by themselves
}

// wanted is something that the agent may want.
type wanted struct {
	name  string // "" for an address
	addr  string
	entry string   // that is about it alone
	args  []string // of poke
}

func (w wish) allows(x wanted) bool {
	allowed := false
	for _, entries := range []map[string]bool{w.files, w.grants} {
		for entry, allow := range entries {
			switch {
			case !covers(entry, x):
			case !allow:
				return false
			default:
				allowed = true
			}
		}
	}
	return allowed
}

// covers says whether an entry is about x. Entries that are blocks only deny, and
// are about names by their addresses.
func covers(entry string, x wanted) bool {
	if block, err := netip.ParsePrefix(entry); err == nil {
		return block.Contains(netip.MustParseAddr(x.addr))
	}
	if below, ok := strings.CutPrefix(entry, "*."); ok {
		return x.name == below || strings.HasSuffix(x.name, "."+below)
	}
	return entry == x.entry
}

// TestGrantsRandom: whatever is written, granted, denied and ended, in whichever
// order, over ends of the guard and of grants: what works is what the policy
// of that moment says, as the far side sees it.
func TestGrantsRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 7))
	l := rig.NewLab(t)
	var targets []wanted
	for name, addr := range map[string]string{"one.test": "45.30.0.81", "a.cdn.test": "45.30.1.82", "cdn.test": "45.30.1.83", "two.test": "45.30.0.81"} {
		l.DNS.SetAddrs(name, addr) // two of them at one address
		targets = append(targets, wanted{name, addr, name, []string{"http", "https://" + name + "/"}})
	}
	l.DNS.SetAddrs("port.test", "45.30.1.84")
	tcp := func(addr string) []string { return []string{"tcp", "-send", "x", addr} }
	targets = append(targets, wanted{"", "45.30.9.9", "45.30.9.9:8443", tcp("45.30.9.9:8443")},
		wanted{"port.test", "45.30.1.84", "port.test:8443", tcp("45.30.1.84:8443")}) // the kernel alone holds it
	allow := []string{"one.test", "two.test", "a.cdn.test", "*.cdn.test", "45.30.9.9:8443", "port.test:8443"}
	deny := append([]string{"45.30.0.0/24", "45.30.1.80/29", "45.30.9.0/24"}, allow...)
	now := wish{files: map[string]bool{}, grants: map[string]bool{}, ends: map[string]time.Time{}}
	w := rig.ConfineIn(t, l, "", lab.BoxOptions{})
	pick := func(of []string) string { return of[r.IntN(len(of))] }
	put := func(verb, entry string) string {
		args := []string{"agent-init", verb, entry}
		delete(now.ends, entry)
		what := verb + " " + entry
		if r.IntN(3) == 0 {
			args = append(args, "--for", "2s")
			now.ends[entry] = time.Now().Add(2 * time.Second)
			what += " for 2s"
		}
		if res := w.Root(args...); res.Code != 0 {
			t.Fatalf("%s: %s", what, res)
		}
		now.grants[entry] = verb == "allow"
		return what
	}
	var done []string
	for range 40 {
		what := ""
		switch r.IntN(6) {
		case 0, 1:
			what = put("allow", pick(allow))
		case 2:
			what = put("deny", pick(deny))
		case 3:
			now.files = map[string]bool{}
			for _, entry := range deny {
				if n := r.IntN(6); n == 0 || n < 3 && slices.Contains(allow, entry) {
					now.files[entry] = n > 0
				}
			}
			var lines strings.Builder
			for entry, allowed := range now.files {
				fmt.Fprintf(&lines, "%s%s\n", map[bool]string{false: "!"}[allowed], entry)
			}
			if res := w.SetPolicy(lines.String()); res.Code != 0 {
				t.Fatal(res)
			}
			what = "files " + strings.ReplaceAll(lines.String(), "\n", " ")
		case 4:
			if len(now.ends) == 0 {
				continue
			}
			what = "the end of " + strings.Join(slices.Sorted(maps.Keys(now.ends)), " and ")
			for entry, end := range now.ends {
				if !rig.Eventually(20*time.Second, func() bool {
					return time.Now().After(end) && !slices.ContainsFunc(w.Grants(), func(g rig.Granted) bool { return g.Target == entry })
				}) {
					t.Fatalf("%s: it never comes", what)
				}
				delete(now.grants, entry)
			}
			clear(now.ends)
		case 5:
			guard := w.Guard()
			guard.Signal(t, unix.SIGKILL)
			if !rig.Eventually(20*time.Second, func() bool { _, code := w.Status(); return code == 0 && w.Guard().Pid != guard.Pid }) {
				t.Fatal("no new guard")
			}
			what = "another guard"
		}
		done = append(done, what)
		for _, x := range targets {
			if slices.ContainsFunc(slices.Collect(maps.Keys(now.ends)), func(entry string) bool { return covers(entry, x) }) {
				continue // which is about to end
			}
			want := now.allows(x)
			w.Box.ForgetPackets()
			w.Poke("resolve", "port.test")
			if p := w.Poke(x.args...); p.OK != want {
				t.Fatalf("after\n%s\n%s%s works: %v, and should: %v: %s", strings.Join(done, "\n"), x.name, x.addr, p.OK, want, p)
			}
			if !want { // the end of a connection to a name that shares the address may still be on its way
				w.Sealed(lab.ToAddr(x.addr), func(p *lab.Packet) bool {
					return p.Proto != unix.IPPROTO_TCP || p.TCPFlags&0x02 != 0 || len(p.Payload) > 0 // SYN, or data
				})
			}
		}
		if t.Failed() {
			t.Fatalf("after\n%s", strings.Join(done, "\n"))
		}
	}
}
