package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/agent-init/agent-init/internal/lab"
)

// The same server is asked through the gate, by a name of the policy, and past
// it: by an address of the policy, and by the leased one of a name that is direct.
const (
	gatedName  = "gated.test"
	gatedAddr  = "45.30.7.1"
	directAddr = "45.30.7.2"
	pastName   = "direct.test"
	pastAddr   = "45.30.7.3"

	setupRounds = 400
	bulkBytes   = 512 << 20
	bulkRounds  = 3
	idleRelays  = 5000

	setupGoal = 300 * time.Microsecond
	bulkGoal  = 0.95
	idleGoal  = 60 << 20
)

func measureGate(b *bench) {
	box := b.gatedBox()
	p := b.runConfined(box)
	defer box.Kill()

	b.report.heading("The name gate: a connection through it, and one past it")
	var setup timing
	b.client(box, &setup, "setup", setupRounds)
	added := setup.Gated - setup.Direct
	b.report.figure("TCP, TLS 1.3 and one answer, past the gate (median)", ms(setup.Direct), "")
	b.report.figure("  through the gate", ms(setup.Gated), "")
	b.report.figure("  added", fmt.Sprintf("%d µs", added.Microseconds()), "< 300 µs").met(added < setupGoal)
	guard := b.childPID(p.Pid(), "guard")
	for _, scheme := range []string{"https", "http"} {
		used := b.cpuTime(guard)
		b.bulk(box, scheme, "no limit but the processors")
		used = (b.cpuTime(guard) - used) * (1 << 30) / (bulkRounds * bulkBytes)
		b.report.figure("  the guard's CPU for each GiB", ms(used), "")
	}
	var past timing
	b.client(box, &past, "https", bulkRounds, "-through", pastAddr+":443")
	share := ratio(past.Direct, past.Gated)
	b.report.figure("  by a leased address (direct) : by one of the policy", times(share), "≥ 0.95×").met(share >= bulkGoal)
	for _, gigabits := range []float64{5, 2.5} {
		b.limitLink(uint64(gigabits * 1e9 / 8))
		b.bulk(box, "https", fmt.Sprintf("a link of %.1f Gbit/s", gigabits))
	}
	before := b.usage(guard)
	c := box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", clientPath, "-client", "hold", "-n", strconv.Itoa(idleRelays)}})
	if !c.WaitOutput("holding", 2*time.Minute) {
		b.Fatalf("%d idle connections could not be opened: %s", idleRelays, c.Wait(time.Second))
	}
	time.Sleep(idleTime)
	more := b.usage(guard).rss - before.rss
	b.report.figure(fmt.Sprintf("%s idle relays, memory more", thousands(idleRelays)), mib(more), "≤ 60 MiB").met(more <= idleGoal)
}

// gatedBox is a box whose policy has the server's name, and its other address.
func (b *bench) gatedBox() *lab.Box {
	b.serveGated()
	list := fmt.Sprintf("%s required\n%s direct\n%s:443\n%[3]s:80\n", gatedName, pastName, directAddr)
	return b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Binds: b.clientBind(), Files: []lab.File{{Path: "/etc/agent-init/allowlist.txt", Data: []byte(list)}}})
}

func (b *bench) serveGated() {
	b.lab.DNS.SetAddrs(gatedName, gatedAddr)
	b.lab.DNS.SetAddrs(pastName, pastAddr)
	b.lab.Web.Handle(gatedName, http.HandlerFunc(serveBulk))
}

// clientBind shows this program in a box.
func (b *bench) clientBind() []lab.Bind {
	self, err := os.Executable()
	if err != nil {
		b.Fatalf("%v", err)
	}
	return []lab.Bind{{Source: self, Target: clientPath}}
}

// bulk compares one stream through the gate and past it. Client, gate and server
// share the machine: where nothing else limits them, the gate's work is taken
// from theirs.
func (b *bench) bulk(box *lab.Box, scheme, limit string) {
	var t timing
	b.client(box, &t, scheme, bulkRounds)
	share := ratio(t.Direct, t.Gated)
	b.report.figure(fmt.Sprintf("one %s stream, past the gate", scheme), rate(t.Direct), "").note("%s, %s", mib(bulkBytes), limit)
	b.report.figure("  through the gate", rate(t.Gated), "")
	b.report.figure("  through the gate : past it", times(share), "≥ 0.95×").met(share >= bulkGoal)
}

// limitLink gives the internet's end of every box's link a rate in bytes a
// second (tc-tbf(8)).
func (b *bench) limitLink(rate uint64) {
	err := b.lab.Internet.Do(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			if l.Type() != "veth" {
				continue
			}
			q := &netlink.Tbf{
				QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
				Rate:       rate, Buffer: 1 << 20, Limit: 4 << 20,
			}
			if err := netlink.QdiscReplace(q); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatalf("limit the link: %v", err)
	}
}

// both is what the client in the box says of the two ways.
type both[T any] struct{ Direct, Gated T }

type (
	timing = both[time.Duration]
	rates  = both[float64] // a second
)

// client is run as the agent of a confined box; into gets what it found.
func (b *bench) client(box *lab.Box, into any, what string, n int, more ...string) {
	args := append([]string{"agent-init", "exec", "--", clientPath, "-client", what, "-n", strconv.Itoa(n)}, more...)
	b.found(into, what, box.Exec(lab.Cmd{Timeout: clientTime, Args: args}))
}

const clientTime = 3 * time.Minute

func (b *bench) found(into any, what string, r lab.Result) {
	if err := json.Unmarshal([]byte(r.Stdout), into); err != nil {
		b.Fatalf("client %s: %v: %s", what, err, r)
	}
}

func rate(d time.Duration) string { return fmt.Sprintf("%.0f MiB/s", bulkBytes/(1<<20)/d.Seconds()) }

// serveBulk answers /bulk with bulkBytes, and anything else with a word.
func serveBulk(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/bulk" {
		fmt.Fprintln(w, "ok")
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(bulkBytes))
	buf := make([]byte, 256<<10)
	for range bulkBytes / len(buf) {
		if _, err := w.Write(buf); err != nil {
			return
		}
	}
}
