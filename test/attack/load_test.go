package attack

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
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
func (w *world) ask(n, c int, name string) lab.Poke {
	w.Helper()
	p := w.poke("-patient", "dns", "-n", fmt.Sprint(n), "-c", fmt.Sprint(c), at(lab.Upstream4, 53), name, "A")
	if !p.OK {
		w.Errorf("not all were answered: %s", p)
	}
	return p
}

// booked waits until that many names have leases.
func (w *world) booked(names int) {
	w.Helper()
	var n float64
	if !eventually(10*time.Minute, func() bool {
		s, _ := w.status()
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

var _ = also(TestLoadLeases, underStress)

// TestLoadLeases: ten thousand names that are leased cost memory once, and
// slow the others down for no longer than it takes to look through them.
func TestLoadLeases(t *testing.T) {
	names := often(1000, 10_000)
	l := newLab(t)
	evilZone(l)
	l.DNS.SetLog(false)
	l.DNS.Set("*.many.test", lab.Answer{Func: numbered})
	w := startIn(t, l, "ok.test\n", lab.BoxOptions{}, "agent-init", "run", "--", "sleep", "infinity")
	w.ready()
	t.Logf("with one name: %v", w.footprints())
	t.Logf("DNS: %s", pace(w.ask(1000, 1, "ok.test")))
	if r := w.setPolicy(lines(names, "")); r.Code != 0 {
		t.Fatal(r)
	}
	begun := time.Now()
	w.booked(names)
	t.Logf("%d names were leased within %v", names, time.Since(begun).Round(time.Millisecond))
	begin := w.footprints()
	t.Logf("with %d names: %v", names, begin)
	for range often(2, 10) {
		begun := time.Now()
		if r := w.root("agent-init", "reload"); r.Code != 0 {
			t.Error(r)
		}
		t.Logf("reloaded within %v", time.Since(begun).Round(time.Millisecond))
		// Longer than the keeper takes from one look at the rules to the next.
		for until := time.Now().Add(often(time.Second, 12*time.Second)); time.Now().Before(until); {
			t.Logf("DNS: %s", pace(w.ask(5000, 4, "ok.test")))
			w.works("http", "https://ok.test/")
		}
		w.works("http", fmt.Sprintf("https://n%d.many.test/", names-1))
	}
	w.flat(begin, 24<<10, 4)
	w.box.ForgetPackets()
	if r := w.setPolicy("ok.test\n"); r.Code != 0 {
		t.Error(r)
	}
	if n := len(leased(t, w.box)); n > 4 {
		t.Errorf("%d leases are left of names that the policy no longer has", n)
	}
	w.recovers("ten thousand names")
	w.closed()
	if w.restarts() != 0 || w.repairs() != 0 {
		t.Errorf("%d restarts, %d repairs: %s", w.restarts(), w.repairs(), w.reasons("guard"))
	}
}

var _ = also(TestLoadRelays, underStress)

// TestLoadRelays: thousands of connections through the name gate at once, all
// of them open before each is used. What that takes the next thousands use again.
func TestLoadRelays(t *testing.T) {
	n := often(500, 5000)
	w := confine(t, "ok.test\nok2.test\n", lab.BoxOptions{})
	w.works("http", "https://ok.test/")
	t.Logf("alone: %v", w.footprints())
	// In turns, since thousands of connections to one address have the same ports
	// again within seconds: see docs/stress.md.
	ok4, ok6 := named("ok.test")
	servers := []netip.Addr{ok4, ok6}
	var begin [2]footprint
	for wave := range often(3, 6) {
		clients := w.asAgent(w.box, "tls", "-sni", "ok.test", "-shake", "200", "-c", fmt.Sprint(n), at(servers[wave%2], 443))
		most, held := 0, [2]footprint{}
		for done := false; !done; {
			select {
			case <-clients.Done():
				done = true
			case <-time.After(100 * time.Millisecond):
			}
			if now := w.redirected(); now > most {
				most, held = now, w.footprints()
			}
			w.works("http", "https://ok2.test/")
		}
		v := verdict(t, clients)
		if answered, _ := v.Detail["answered"].(float64); !v.OK || int(answered) != n {
			t.Errorf("%v of %d were answered: %s\n%s", v.Detail["answered"], n, v, w.reasons("drop"))
		}
		t.Logf("at %d connections: %v", most, held)
		w.box.ForgetPackets()
		w.lab.ForgetConns()
		if wave == 1 {
			begin = w.footprints()
		}
	}
	w.flat(begin, 8<<10, 8)
	w.recovers("the connections")
	w.closed("ok2.test")
	if w.restarts() != 0 {
		t.Errorf("%d restarts: %s", w.restarts(), w.reasons("guard"))
	}
}

var _ = also(TestLoadDNS, underStress)

// TestLoadDNS: questions one after another for as long as it takes.
func TestLoadDNS(t *testing.T) {
	w := confine(t, "ok.test\n", lab.BoxOptions{})
	t.Logf("alone: %s", pace(w.ask(500, 1, "ok.test")))
	begin := w.footprints()
	total := 0
	for until := time.Now().Add(often(3*time.Second, time.Minute)); time.Now().Before(until); total += 20_000 {
		t.Logf("sixteen at once: %s", pace(w.ask(20_000, 16, "ok.test")))
	}
	t.Logf("%d questions were answered", total)
	w.flat(begin, 8<<10, 4)
	w.recovers("the questions")
	w.closed()
}

var _ = also(TestLoadPolicy, underStress)

// TestLoadPolicy: a policy of a hundred thousand lines comes into force, again
// and again, while the agent works.
func TestLoadPolicy(t *testing.T) {
	n := often(20_000, 100_000)
	w := startIn(t, newLab(t), "ok.test\n", lab.BoxOptions{}, "agent-init", "run", "--", "sleep", "infinity")
	w.ready()
	w.lab.DNS.SetLog(false)
	t.Logf("with one line: %v", w.footprints())
	denied := &strings.Builder{}
	for i := range n {
		fmt.Fprintf(denied, "!d%d.many.test\n", i)
	}
	lists := []string{"ok.test\n" + denied.String(), denied.String() + "ok.test\nok2.test\n"}
	load := func(i int) {
		t.Helper()
		begun := time.Now()
		if r := w.setPolicy(lists[i%2]); r.Code != 0 {
			t.Errorf("reload %d: %s", i, r)
		}
		t.Logf("%d lines within %v", n, time.Since(begun).Round(time.Millisecond))
		w.works("http", "https://ok.test/")
		if p := w.poke("http", "-timeout", "60s", "https://ok2.test/"); p.OK != (i%2 == 1) {
			t.Errorf("reload %d: %s", i, p)
		}
	}
	w.box.ForgetPackets()
	var begin [2]footprint // the largest: what was collected by chance counts for nothing
	for i := range 4 {
		load(i)
		for j, f := range w.footprints() {
			f.kib, f.files = max(f.kib, begin[j].kib), max(f.files, begin[j].files)
			begin[j] = f
		}
	}
	for i := range often(4, 40) {
		load(i)
	}
	w.flat(begin, n>>10*512, 4) // half a KiB for each line: what one of them may wait to be collected
	w.recovers("the reloads")
	w.closed("ok2.test")
	if w.restarts() != 0 {
		t.Errorf("%d restarts: %s", w.restarts(), w.reasons("guard"))
	}
}

var _ = also(TestLoadStarve, underStress)

// TestLoadStarve: however much the agent asks for what it may not have, what it
// may have is served.
func TestLoadStarve(t *testing.T) {
	l := newLab(t)
	evilZone(l)
	w := confineIn(t, l, "ok.test\n*.silent.test\n", lab.BoxOptions{})
	l.DNS.Set("*.silent.test", lab.Answer{Silent: true})
	ok4, _ := named("ok.test")
	server := at(lab.Upstream4, 53)
	tries := often(60, 600)
	client := func(when string) {
		t.Helper()
		t.Logf("%s: DNS: %s", when, pace(w.ask(tries, 1, "ok.test")))
		p := w.works("loop", "-timeout", "10s", "-n", fmt.Sprint(tries), "-name", "ok.test", ":443")
		t.Logf("%s: connections: %s", when, pace(p))
		for range tries / 20 {
			w.works("http", "-timeout", "10s", "https://ok.test/")
		}
	}
	client("alone")
	begin := w.footprints()
	w.box.ForgetPackets()
	l.DNS.Forget()
	stops := []func(){
		quietly(t, w, "poke dns -n 20000 -c 16 "+server+" x{n}.evil.test A"),
		quietly(t, w, "poke dns -n 64 -c 64 -timeout 2s "+server+" s{n}.silent.test A"),
		quietly(t, w, "poke loop -n 2000 -c 8 -timeout 1s 1.1.1.1:443"),
		quietly(t, w, "poke flood -n 20000 -spread 200 45.66.0.1:9999"),
		quietly(t, w, "poke tls -c 100 -n 3 -insecure -sni evil.test "+at(ok4, 443)),
		quietly(t, w, "poke idle -n 300 -hold 1s "+at(ok4, 443)),
	}
	client("under attack")
	for _, stop := range stops {
		stop()
	}
	client("after it")
	w.flat(begin, 32<<10, 8)
	w.recovers("the attack")
	w.unasked("evil.test")
	w.upstreamOnlyOr("ok.test")
	if w.restarts() != 0 {
		t.Errorf("%d restarts: %s", w.restarts(), w.reasons("guard"))
	}
}

var _ = also(TestLoadDay, underStress)

// TestLoadDay: what an agent does in a day, one after another: a question each
// second, a connection every ten seconds, as many refusals of each kind, a reload,
// two grants and a few commands each hour. Nothing grows from the second hour on.
func TestLoadDay(t *testing.T) {
	hours, share := often(6, 24), often(60, 1)
	l := newLab(t)
	evilZone(l)
	l.DNS.SetLog(false)
	l.DNS.Set("*.cdn.test", lab.Answer{Func: numbered, TTL: 1})
	w := confineIn(t, l, "ok.test\nok2.test\n*.cdn.test\n", lab.BoxOptions{Files: []lab.File{settings("limits:\n  new_names_per_wildcard_per_minute: 100000\n")}})
	ok4, _ := named("ok.test")
	few := func(n int) string { return fmt.Sprint(max(1, n/share)) }
	var begin [2]footprint
	for hour := range hours {
		w.ask(max(1, 3000/share), 4, "ok.test")
		// Leases last for a minute: more new names than that would be a longer day.
		w.poke("dns", "-n", few(500), "-c", "4", "-timeout", "5s", at(lab.Upstream4, 53), "n{n}.cdn.test", "A")
		w.poke("dns", "-n", few(10), "-timeout", "5s", at(lab.Upstream4, 53), fmt.Sprintf("n%d{n}.cdn.test", 1000+hour), "A")
		if p := w.poke("tls", "-sni", "ok.test", "-c", "4", "-n", few(90), at(ok4, 443)); !p.OK {
			t.Errorf("hour %d: %s", hour, p)
		}
		w.poke("dns", "-n", few(360), "-c", "4", at(lab.Upstream4, 53), "x"+fmt.Sprint(hour)+"{n}.evil.test", "A")
		w.blocked("loop", "-n", few(360), "-timeout", "1s", "1.1.1.1:443")
		w.poke("tls", "-insecure", "-sni", "evil.test", "-c", "4", "-n", few(90), at(ok4, 443))
		for range max(1, 6/share) {
			w.works("http", "https://ok2.test/")
		}
		w.did("allow", "45.30.88.8:443", "--for", "1s")
		w.did("allow", "granted.test", "--for", "10m")
		w.did("deny", "granted.test")
		if r := w.root("agent-init", "reload"); r.Code != 0 {
			t.Errorf("hour %d: %s", hour, r)
		}
		w.upstreamOnlyOr("ok.test", "ok2.test")
		w.box.ForgetPackets()
		w.lab.Web.Forget()
		w.lab.ForgetConns()
		if hour == 1 || hour == hours/2 {
			t.Logf("hour %d: %v", hour, w.footprints())
		}
		if hour == 1 {
			begin = w.footprints()
		}
	}
	w.flat(begin, 8<<10, 4)
	w.recovers("a day")
	if w.restarts() != 0 || w.repairs() != 0 {
		t.Errorf("%d restarts, %d repairs: %s", w.restarts(), w.repairs(), w.reasons("guard"))
	}
}
