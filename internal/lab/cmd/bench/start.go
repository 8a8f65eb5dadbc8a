package main

import (
	"strconv"
	"strings"
	"time"

	_ "embed"

	"fmt"

	"github.com/agent-init/agent-init/internal/lab"
)

const (
	dnsLatency  = 20 * time.Millisecond
	scriptNames = 100
)

// firewallScript is what is often used instead: see its head.
//
//go:embed init-firewall.sh
var firewallScript []byte

// A shell says when it executes what is measured, in the same process; another
// says when it was executed in turn.
const (
	clock  = `echo $EPOCHREALTIME`
	before = clock + `; exec "$@"`
	// answering says so once a server accepts.
	answering = clock + `; "$@" & until (exec 3<>/dev/tcp/127.0.0.1/3128) 2>/dev/null; do sleep 0.002; done; ` + clock
)

// timed runs a script of bash in the box as PID 1, and returns the time between the two that it says.
func (b *bench) timed(box *lab.Box, script string, args ...string) time.Duration {
	b.lab.DNS.SetLatency(dnsLatency)
	defer b.lab.DNS.SetLatency(0)
	r := box.Run(lab.Cmd{Args: append([]string{"bash", "-c", script, "bash"}, args...), Timeout: time.Minute})
	lines := strings.Fields(r.Stdout)
	if r.Code != 0 || len(lines) != 2 {
		b.Fatalf("a measured start failed: %s", r)
	}
	var at [2]float64
	for i, s := range lines {
		var err error
		if at[i], err = strconv.ParseFloat(s, 64); err != nil {
			b.Fatalf("a time of a measured start: %v", err)
		}
	}
	return time.Duration((at[1] - at[0]) * float64(time.Second))
}

// start is the time from the exec of args to the exec of the agent, in a box like those of a container that was just
// made. The agent is a shell that tells the time; what it takes to start is subtracted.
func (b *bench) start(box *lab.Box, args ...string) float64 {
	agent := []string{"bash", "-c", clock}
	bare := b.timed(b.lab.NewBox(lab.BoxOptions{}), before, agent...)
	return millis(b.timed(box, before, append(args, agent...)...) - bare)
}

func slowestStart(b *bench) (most float64) {
	for _, n := range []int{10, 100, 1000, maxNames} {
		most = max(most, b.start(b.confined(n), "agent-init", "run", "--"))
	}
	return most
}

// startSquid is the time until squid accepts a connection, with as many names.
func startSquid(b *bench) float64 {
	p := squid(names(maxNames))
	box := b.lab.NewBox(lab.BoxOptions{Files: p.files})
	return millis(b.timed(box, answering, "sh", "-c", p.start))
}

// startScript is the shell script in a box like those of agent-init.
func startScript(b *bench) float64 {
	box := b.lab.NewBox(lab.BoxOptions{
		Caps: append(lab.DefaultCaps(), "NET_RAW"),
		Files: []lab.File{
			{Path: "/usr/local/bin/init-firewall.sh", Data: firewallScript, Mode: 0o755},
			{Path: "/etc/names", Data: []byte(names(scriptNames))},
		},
	})
	return b.start(box, "/usr/local/bin/init-firewall.sh", "46")
}

// names has one on each line.
func names(n int) string {
	var w strings.Builder
	for i := range n {
		fmt.Fprintln(&w, nameOf(i))
	}
	return w.String()
}
