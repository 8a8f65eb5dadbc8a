package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// scaleRates tells what the keeper does while the agent does something so often a second, and what of it the log has.
func scaleRates(b *bench) {
	b.report.heading("Scale: what the agent does a second")
	box := b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Binds: b.clientBind(), Files: allowlist(1)})
	defer box.Kill()
	pid := b.runConfined(box).Pid()
	rates := []int{2, 10, 100, 1000, 10_000, 50_000}
	written := grows("refused questions a second: lines of them in the log", func(c float64) string { return fmt.Sprintf("%.1f/s", c) })
	counted := grows("refusals that lines only count", func(c float64) string { return fmt.Sprintf("%.1f/s", c) })
	for _, kind := range []struct{ what, sends string }{
		{"refused questions a second", "names x%s.evil.test"},
		{"answered questions a second", "name " + nameOf(0)},
		{"refused packets a second", "packets"},
	} {
		keeper := b.owns(kind.what + ": ")
		refuses := strings.HasPrefix(kind.sends, "names")
		if refuses { // the first thousand lines are free
			b.sends(box, kind.sends, 2000)
			time.Sleep(2 * time.Second)
		}
		for _, n := range rates {
			var lines, more, sent int
			before, suppressed := b.linesOf(box)
			b.add(keeper, n, pid, func() {
				sent = b.sends(box, kind.sends, n)
				if refuses {
					time.Sleep(1500 * time.Millisecond) // the count comes once a second
				}
			})
			lines, more = b.linesOf(box)
			if refuses {
				written.add(n, float64(lines-before)/sendTime.Seconds())
				counted.add(n, float64(more-suppressed)/sendTime.Seconds())
			}
			if sent < n*int(sendTime.Seconds())*8/10 {
				b.Logf("%s: %d came to %d", kind.what, n, sent/int(sendTime.Seconds()))
			}
		}
		b.tell(keeper)
		if refuses {
			b.report.row(written)
			b.report.row(counted)
			b.report.limit("lines of a kind", "5/s", "after the first 1,000; "+b.lastLine(box, "flood:"))
		}
	}
}

// sends has the agent send, and returns how many were sent.
func (b *bench) sends(box *lab.Box, what string, rate int) (sent int) {
	b.client(box, &sent, "send", rate, "-through", what)
	return sent
}

// linesOf counts the lines of the log about refused names, and what they count besides.
func (b *bench) linesOf(box *lab.Box) (lines, counted int) {
	data, err := box.ReadFile("/var/log/agent-init/audit.jsonl")
	if err != nil {
		b.Fatalf("%v", err)
	}
	for line := range strings.Lines(string(data)) {
		var e struct {
			Event, Verdict, Name string
			Suppressed           int
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			b.Fatalf("a line of the log: %v", err)
		}
		if e.Event == "dns" && e.Verdict == "deny" {
			if e.Name != "" {
				lines++
			}
			counted += e.Suppressed
		}
	}
	return lines, counted
}

// scaleProcesses tells what the agent's processes cost the keeper, which looks through them for who has asked.
func scaleProcesses(b *bench) {
	b.report.heading("Scale: processes of the agent")
	box := b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Binds: b.clientBind(), Files: allowlist(1)})
	defer box.Kill()
	pid, made := b.runConfined(box).Pid(), 0
	quiet, asked := b.owns(""), grows("its processor time, while refusals have it look for who asks", aSecond)
	for _, n := range []int{10, 100, 1000, 5000} {
		c := box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", clientPath, "-client", "processes", "-n", strconv.Itoa(n - made)}})
		if made = n; !c.WaitOutput("kept", lab.Patience) {
			b.Fatalf("%d processes: %s", n, c.Wait(time.Second))
		}
		b.add(quiet, n, pid, rest)
		asked.add(n, b.over(pid, func() { b.sends(box, "names x%s.evil.test", 200) }))
	}
	b.tell(quiet)
	b.report.flat(asked, float64(flatCPU))
}
