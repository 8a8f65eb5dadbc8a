package faults

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// What a test of load finds out of how fast things are is said, not judged: it
// shares the machine with others. What is judged is that everything was served,
// that nothing has grown, and that nothing else has left.

// pace is how long tries took, for people to read.
func pace(p lab.Poke) string {
	return fmt.Sprintf("%.0f a second, p50 %v ms, p99 %v ms", p.Detail["per_second"], p.Detail["p50_ms"], p.Detail["p99_ms"])
}

// ask has the agent ask for an allowed name n times, c at once, and fails the
// test unless each was answered.
func ask(w *rig.World, n, c int, name string) lab.Poke {
	w.Helper()
	p := w.Poke("-patient", "dns", "-n", fmt.Sprint(n), "-c", fmt.Sprint(c), rig.At(lab.Upstream4, 53), name, "A")
	if !p.OK {
		w.Errorf("not all were answered: %s", p)
	}
	return p
}

// booked waits until that many names have leases.
func booked(w *rig.World, names int) {
	w.Helper()
	var n float64
	if !rig.Eventually(10*time.Minute, func() bool {
		s, _ := w.Status()
		l, _ := s["leases"].(map[string]any)
		n, _ = l["names"].(float64)
		return int(n) >= names
	}) {
		w.Fatalf("%v of %d names are leased", n, names)
	}
}

// lines are entries for n names, each with an address of its own.
func lines(n int, after string) string {
	list := &strings.Builder{}
	for i := range n {
		fmt.Fprintf(list, "n%d.many.test\n", i)
	}
	return "ok.test\n" + after + list.String()
}

var _ = rig.Also(TestLoadLeases, rig.UnderStress)

// TestLoadLeases: ten thousand names that are leased cost memory once, and
// slow the others down for no longer than it takes to look through them.
func TestLoadLeases(t *testing.T) {
	names := rig.Often(1000, 10_000)
	l := rig.NewLab(t)
	rig.EvilZone(l)
	l.DNS.SetLog(false)
	l.DNS.Set("*.many.test", lab.Answer{Func: numbered})
	w := rig.StartIn(t, l, "ok.test\n", lab.BoxOptions{}, "agent-init", "run", "--", "sleep", "infinity")
	w.Ready()
	t.Logf("with one name: %v", footprints(w))
	t.Logf("DNS: %s", pace(ask(w, 1000, 1, "ok.test")))
	if r := w.SetPolicy(lines(names, "")); r.Code != 0 {
		t.Fatal(r)
	}
	begun := time.Now()
	booked(w, names)
	t.Logf("%d names were leased within %v", names, time.Since(begun).Round(time.Millisecond))
	begin := footprints(w)
	t.Logf("with %d names: %v", names, begin)
	for range rig.Often(2, 10) {
		begun := time.Now()
		if r := w.Root("agent-init", "reload"); r.Code != 0 {
			t.Error(r)
		}
		t.Logf("reloaded within %v", time.Since(begun).Round(time.Millisecond))
		// Longer than the keeper takes from one look at the rules to the next.
		for until := time.Now().Add(rig.Often(time.Second, 12*time.Second)); time.Now().Before(until); {
			t.Logf("DNS: %s", pace(ask(w, 5000, 4, "ok.test")))
			w.Works("http", "https://ok.test/")
		}
		w.Works("http", fmt.Sprintf("https://n%d.many.test/", names-1))
	}
	flat(w, begin, 24<<10, 4)
	w.Box.ForgetPackets()
	if r := w.SetPolicy("ok.test\n"); r.Code != 0 {
		t.Error(r)
	}
	if n := len(rig.Leased(t, w.Box)); n > 4 {
		t.Errorf("%d leases are left of names that the policy no longer has", n)
	}
	w.Recovers("ten thousand names")
	w.Closed()
	if w.Restarts() != 0 || repairs(w) != 0 {
		t.Errorf("%d restarts, %d repairs: %s", w.Restarts(), repairs(w), w.Reasons("guard"))
	}
}

var _ = rig.Also(TestLoadRelays, rig.UnderStress)

// TestLoadRelays: thousands of connections through the name gate at once, all
// of them open before each is used. What that takes the next thousands use again.
func TestLoadRelays(t *testing.T) {
	n := rig.Often(500, 5000)
	w := rig.Confine(t, "ok.test\nok2.test\n", lab.BoxOptions{})
	w.Works("http", "https://ok.test/")
	t.Logf("alone: %v", footprints(w))
	// In turns, since thousands of connections to one address have the same ports
	// again within seconds: see docs/stress.md.
	ok4, ok6 := rig.Named("ok.test")
	servers := []netip.Addr{ok4, ok6}
	var begin [2]footprint
	for wave := range rig.Often(3, 6) {
		clients := w.AsAgent(w.Box, "tls", "-sni", "ok.test", "-shake", "200", "-c", fmt.Sprint(n), rig.At(servers[wave%2], 443))
		most, held := 0, [2]footprint{}
		for done := false; !done; {
			select {
			case <-clients.Done():
				done = true
			case <-time.After(100 * time.Millisecond):
			}
			if now := w.Redirected(); now > most {
				most, held = now, footprints(w)
			}
			w.Works("http", "https://ok2.test/")
		}
		v := rig.Verdict(t, clients)
		if answered, _ := v.Detail["answered"].(float64); !v.OK || int(answered) != n {
			t.Errorf("%v of %d were answered: %s\n%s", v.Detail["answered"], n, v, w.Reasons("drop"))
		}
		t.Logf("at %d connections: %v", most, held)
		w.Box.ForgetPackets()
		w.Lab.ForgetConns()
		if wave == 1 {
			begin = footprints(w)
		}
	}
	flat(w, begin, 8<<10, 8)
	w.Recovers("the connections")
	w.Closed("ok2.test")
	if w.Restarts() != 0 {
		t.Errorf("%d restarts: %s", w.Restarts(), w.Reasons("guard"))
	}
}

var _ = rig.Also(TestLoadDNS, rig.UnderStress)

// TestLoadDNS: questions one after another for as long as it takes.
func TestLoadDNS(t *testing.T) {
	w := rig.Confine(t, "ok.test\n", lab.BoxOptions{})
	t.Logf("alone: %s", pace(ask(w, 500, 1, "ok.test")))
	begin := footprints(w)
	total := 0
	for until := time.Now().Add(rig.Often(3*time.Second, time.Minute)); time.Now().Before(until); total += 20_000 {
		t.Logf("sixteen at once: %s", pace(ask(w, 20_000, 16, "ok.test")))
	}
	t.Logf("%d questions were answered", total)
	flat(w, begin, 8<<10, 4)
	w.Recovers("the questions")
	w.Closed()
}

var _ = rig.Also(TestLoadPolicy, rig.UnderStress)

// TestLoadPolicy: a policy of a hundred thousand lines comes into force, again
// and again, while the agent works.
func TestLoadPolicy(t *testing.T) {
	n := rig.Often(20_000, 100_000)
	w := rig.StartIn(t, rig.NewLab(t), "ok.test\n", lab.BoxOptions{}, "agent-init", "run", "--", "sleep", "infinity")
	w.Ready()
	w.Lab.DNS.SetLog(false)
	t.Logf("with one line: %v", footprints(w))
	denied := &strings.Builder{}
	for i := range n {
		fmt.Fprintf(denied, "!d%d.many.test\n", i)
	}
	lists := []string{"ok.test\n" + denied.String(), denied.String() + "ok.test\nok2.test\n"}
	load := func(i int) {
		t.Helper()
		begun := time.Now()
		if r := w.SetPolicy(lists[i%2]); r.Code != 0 {
			t.Errorf("reload %d: %s", i, r)
		}
		t.Logf("%d lines within %v", n, time.Since(begun).Round(time.Millisecond))
		w.Works("http", "https://ok.test/")
		if p := w.Poke("http", "-timeout", "60s", "https://ok2.test/"); p.OK != (i%2 == 1) {
			t.Errorf("reload %d: %s", i, p)
		}
	}
	w.Box.ForgetPackets()
	var begin [2]footprint // the largest: what was collected by chance counts for nothing
	for i := range 4 {
		load(i)
		for j, f := range footprints(w) {
			f.kib, f.files = max(f.kib, begin[j].kib), max(f.files, begin[j].files)
			begin[j] = f
		}
	}
	for i := range rig.Often(4, 40) {
		load(i)
	}
	flat(w, begin, n>>10*512, 4) // half a KiB for each line: what one of them may wait to be collected
	w.Recovers("the reloads")
	w.Closed("ok2.test")
	if w.Restarts() != 0 {
		t.Errorf("%d restarts: %s", w.Restarts(), w.Reasons("guard"))
	}
}

var _ = rig.Also(TestLoadStarve, rig.UnderStress)

// TestLoadStarve: however much the agent asks for what it may not have, what it
// may have is served.
func TestLoadStarve(t *testing.T) {
	l := rig.NewLab(t)
	rig.EvilZone(l)
	w := rig.ConfineIn(t, l, "ok.test\n*.silent.test\n", lab.BoxOptions{})
	l.DNS.Set("*.silent.test", lab.Answer{Silent: true})
	ok4, _ := rig.Named("ok.test")
	server := rig.At(lab.Upstream4, 53)
	tries := rig.Often(60, 600)
	client := func(when string) {
		t.Helper()
		t.Logf("%s: DNS: %s", when, pace(ask(w, tries, 1, "ok.test")))
		p := w.Works("loop", "-timeout", "10s", "-n", fmt.Sprint(tries), "-name", "ok.test", ":443")
		t.Logf("%s: connections: %s", when, pace(p))
		for range tries / 20 {
			w.Works("http", "-timeout", "10s", "https://ok.test/")
		}
	}
	client("alone")
	begin := footprints(w)
	w.Box.ForgetPackets()
	l.DNS.Forget()
	stops := []func(){
		quietly(t, w, "poke dns -n 20000 -c 16 "+server+" x{n}.evil.test A"),
		quietly(t, w, "poke dns -n 64 -c 64 -timeout 2s "+server+" s{n}.silent.test A"),
		quietly(t, w, "poke loop -n 2000 -c 8 -timeout 1s 1.1.1.1:443"),
		quietly(t, w, "poke flood -n 20000 -spread 200 45.66.0.1:9999"),
		quietly(t, w, "poke tls -c 100 -n 3 -insecure -sni evil.test "+rig.At(ok4, 443)),
		quietly(t, w, "poke idle -n 300 -hold 1s "+rig.At(ok4, 443)),
	}
	client("under attack")
	for _, stop := range stops {
		stop()
	}
	client("after it")
	flat(w, begin, 32<<10, 8)
	w.Recovers("the attack")
	w.Unasked("evil.test")
	w.UpstreamOnlyOr("ok.test")
	if w.Restarts() != 0 {
		t.Errorf("%d restarts: %s", w.Restarts(), w.Reasons("guard"))
	}
}

var _ = rig.Also(TestLoadDay, rig.UnderStress)

// TestLoadDay: what an agent does in a day, one after another: a question each
// second, a connection every ten seconds, as many refusals of each kind, a reload,
// two grants and a few commands each hour. Nothing grows from the second hour on.
func TestLoadDay(t *testing.T) {
	hours, share := rig.Often(6, 24), rig.Often(60, 1)
	l := rig.NewLab(t)
	rig.EvilZone(l)
	l.DNS.SetLog(false)
	l.DNS.Set("*.cdn.test", lab.Answer{Func: numbered, TTL: 1})
	w := rig.ConfineIn(t, l, "ok.test\nok2.test\n*.cdn.test\n", lab.BoxOptions{Files: []lab.File{rig.Settings("limits:\n  new_names_per_wildcard_per_minute: 100000\n")}})
	ok4, _ := rig.Named("ok.test")
	few := func(n int) string { return fmt.Sprint(max(1, n/share)) }
	var begin [2]footprint
	for hour := range hours {
		ask(w, max(1, 3000/share), 4, "ok.test")
		// Leases last for a minute: more new names than that would be a longer day.
		w.Poke("dns", "-n", few(500), "-c", "4", "-timeout", "5s", rig.At(lab.Upstream4, 53), "n{n}.cdn.test", "A")
		w.Poke("dns", "-n", few(10), "-timeout", "5s", rig.At(lab.Upstream4, 53), fmt.Sprintf("n%d{n}.cdn.test", 1000+hour), "A")
		if p := w.Poke("tls", "-sni", "ok.test", "-c", "4", "-n", few(90), rig.At(ok4, 443)); !p.OK {
			t.Errorf("hour %d: %s", hour, p)
		}
		w.Poke("dns", "-n", few(360), "-c", "4", rig.At(lab.Upstream4, 53), "x"+fmt.Sprint(hour)+"{n}.evil.test", "A")
		w.Blocked("loop", "-n", few(360), "-timeout", "1s", "1.1.1.1:443")
		w.Poke("tls", "-insecure", "-sni", "evil.test", "-c", "4", "-n", few(90), rig.At(ok4, 443))
		for range max(1, 6/share) {
			w.Works("http", "https://ok2.test/")
		}
		w.Did("allow", "45.30.88.8:443", "--for", "1s")
		w.Did("allow", "granted.test", "--for", "10m")
		w.Did("deny", "granted.test")
		if r := w.Root("agent-init", "reload"); r.Code != 0 {
			t.Errorf("hour %d: %s", hour, r)
		}
		w.UpstreamOnlyOr("ok.test", "ok2.test")
		w.Box.ForgetPackets()
		w.Lab.Web.Forget()
		w.Lab.ForgetConns()
		if hour == 1 || hour == hours/2 {
			t.Logf("hour %d: %v", hour, footprints(w))
		}
		if hour == 1 {
			begin = footprints(w)
		}
	}
	flat(w, begin, 8<<10, 4)
	w.Recovers("a day")
	if w.Restarts() != 0 || repairs(w) != 0 {
		t.Errorf("%d restarts, %d repairs: %s", w.Restarts(), repairs(w), w.Reasons("guard"))
	}
}
