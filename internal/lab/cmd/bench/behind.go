package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/agent-init/agent-init/internal/lab"
)

// behindRounds is how often each way is taken, in turns with the others of its kind.
const behindRounds = 5

// Goals of the throughput through a gateway, beside the same path through a plain router.
const (
	behindGoal = 0.6  // where the processors alone limit it
	linkedGoal = 0.95 // on a link
)

// way is one from a box behind something to the server.
type way struct {
	name    string
	box     *lab.Box
	through string // as for the client
}

// measureBehind compares streams through a gateway with the same through a router that only forwards.
func measureBehind(b *bench) {
	b.serveGated()
	router := b.lab.NewBox(lab.BoxOptions{Gateway: true, Forwards: true})
	plain := b.behind(router)
	b.routeBack(router, plain)
	route, own := b.keeping("real"), b.keeping("own")
	routed, unrouted := b.behind(route), b.behind(own)
	for _, box := range []*lab.Box{router, route, own} {
		defer box.Kill()
	}

	b.report.heading("A gateway beside a plain router: one stream")
	compare := func(limit string, goal float64) {
		b.compareWays("https", limit, goal, way{"through a plain router", plain, gatedAddr + ":443"},
			way{"by the name gate, --answer real", routed, gatedAddr + ":443"}, way{"by the name gate, --answer own", unrouted, own.Inside4().String() + ":443"})
		b.compareWays("http", limit, goal, way{"through a plain router", plain, directAddr + ":80"}, way{"routed, by an entry of the address", routed, directAddr + ":80"})
	}
	compare("no limit but the processors", behindGoal)
	b.limitLink(2.5e9 / 8)
	compare("a link of 2.5 Gbit/s", linkedGoal)
}

// keeping is a gateway that lets agents have the server by its name, and by its other address.
func (b *bench) keeping(answer string) *lab.Box {
	list := fmt.Sprintf("%s required\n%s:443\n%[2]s:80\n", gatedName, directAddr)
	box := b.lab.NewBox(lab.BoxOptions{Gateway: true, Forwards: answer == "real", Binary: b.binary,
		Files: []lab.File{{Path: "/etc/agent-init/allowlist.txt", Data: []byte(list)}}})
	p := box.Start(lab.Cmd{Args: []string{"agent-init", "gateway", "--inside", "eth1", "--answer", answer}})
	if r := box.Exec(lab.Cmd{Args: []string{"agent-init", "wait", "--timeout", "1m"}}); r.Code != 0 {
		b.Fatalf("the gateway did not start: %s\n%s", r, p.Stderr())
	}
	return box
}

// behind is an agent's box behind another one.
func (b *bench) behind(gateway *lab.Box) *lab.Box {
	box := b.lab.NewBox(lab.BoxOptions{Behind: gateway, Binds: b.clientBind()})
	box.Idle()
	return box
}

// routeBack has the internet find a box behind a router that gives nobody an address of its own.
func (b *bench) routeBack(router, box *lab.Box) {
	err := b.lab.Internet.Do(func() error {
		return netlink.RouteAdd(&netlink.Route{Dst: netlink.NewIPNet(box.Addr4().AsSlice()), Gw: router.Addr4().AsSlice()})
	})
	if err != nil {
		b.Fatalf("a route to a box behind a router: %v", err)
	}
}

// compareWays fetches by each way in turns, and holds all to the first.
func (b *bench) compareWays(scheme, limit string, goal float64, ways ...way) {
	took := make([][]time.Duration, len(ways))
	for range behindRounds {
		for i, w := range ways {
			var d time.Duration
			b.found(&d, scheme, w.box.Exec(lab.Cmd{UID: lab.AgentUID, Timeout: clientTime,
				Args: []string{clientPath, "-client", "one-" + scheme, "-through", w.through}}))
			took[i] = append(took[i], d)
		}
	}
	for i, w := range ways {
		name := fmt.Sprintf("one %s stream, %s", scheme, w.name)
		if i > 0 {
			name = "  " + w.name
		}
		f := b.report.figure(name, rate(median(took[i])), "")
		if i == 0 {
			f.note("%s, %s; %s", mib(bulkBytes), limit, spread(took[i]))
			continue
		}
		f.note("%s", spread(took[i]))
		share := ratio(median(took[0]), median(took[i]))
		b.report.figure("  "+w.name+" : the router", times(share), "≥ "+strconv.FormatFloat(goal, 'g', -1, 64)+"×").met(share >= goal)
	}
}

// spread is the slowest and the fastest.
func spread(took []time.Duration) string {
	slow, fast := took[0], took[0]
	for _, d := range took {
		slow, fast = max(slow, d), min(fast, d)
	}
	return rate(slow) + "…" + rate(fast)
}
