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
	rates := []int{10, 100, 1000, 10_000, 30_000}
	written := grows("refused questions a second: lines of them in the log", func(c float64) string { return fmt.Sprintf("%.1f/s", c) })
	refused := 0
	for _, kind := range []struct{ what, sends string }{
		{"refused questions a second", "names x%s.evil.test"},
		{"answered questions a second", "name " + nameOf(0)},
		{"refused packets a second", "packets"},
	} {
		keeper := b.owns(kind.what + ": ")
		refuses := strings.HasPrefix(kind.sends, "names")
		if !strings.HasPrefix(kind.sends, "name ") { // the first thousand lines of a kind are free
			for range 2 {
				n := b.sends(box, kind.sends, 700)
				if refuses {
					refused += n
				}
			}
			time.Sleep(2 * time.Second)
		}
		for _, n := range rates {
			before, _ := b.linesOf(box)
			begun, sent := time.Now(), 0
			b.add(keeper, n, pid, func() { sent = b.sends(box, kind.sends, n) })
			lines, _ := b.linesOf(box)
			if refuses {
				written.add(n, float64(lines-before)/time.Since(begun).Seconds())
				refused += sent
			}
			if want := int(float64(n) * sendTime.Seconds()); sent < want*8/10 {
				b.Logf("%s: %d of %d were sent", kind.what, sent, want)
			}
		}
		b.tell(keeper)
		if refuses {
			b.report.row(written)
		}
	}
	lines, counted := b.linesOf(box) // what the first kind began is over by now
	b.report.limit("lines of one kind and verdict", "5/s", fmt.Sprintf("behind the first 1,000. %s questions were refused; %s lines tell of them, and count %s. The log: %s",
		thousands(refused), thousands(lines), thousands(counted), b.lastLine(box, "flood:")))
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
	for range 2 { // the first thousand lines are free
		b.sends(box, "names y%s.evil.test", 700)
	}
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
