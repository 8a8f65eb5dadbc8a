package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// scaleRounds is how often a cost is taken at each size, but for those of seconds, which are taken once.
const scaleRounds = 3

// What a cost of the keeper's may do while the agent makes more: grow by no more than these, whatever the agent makes.
const (
	flatCPU    = 20 * time.Millisecond // a second
	flatMemory = 8 << 20
)

// scales are sections that tell how each cost grows with what it is about. Each takes a minute or less by itself, for a
// machine that others use as well.
func scales() []section {
	return []section{
		{"scale-names", scaleNames}, {"scale-leases", scaleLeases}, {"scale-gate", scaleGate}, {"scale-connections", scaleConnections},
		{"scale-flows", scaleFlows}, {"scale-windows", scaleWindows}, {"scale-sessions", scaleSessions}, {"scale-rates", scaleRates},
		{"scale-processes", scaleProcesses},
	}
}

// moreDescriptors lets this process, and what it starts, have as many as a container engine gives; with less, that is
// what the rows of connections name.
func (b *bench) moreDescriptors() {
	const usual = 1 << 20
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: usual, Max: usual}); err != nil {
		b.Logf("no more than %d descriptors: %v", b.descriptors(), err)
	}
}

// descriptors is how many a process may have.
func (b *bench) descriptors() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		b.Fatalf("%v", err)
	}
	return int(r.Max)
}

// growth is what one cost is at each size.
type growth struct {
	name  string
	write func(float64) string
	sizes []int
	costs []float64
}

// grows begins with no size.
func grows(name string, write func(float64) string) *growth { return &growth{name: name, write: write} }

func (g *growth) add(size int, cost float64) {
	g.sizes, g.costs = append(g.sizes, size), append(g.costs, max(cost, 0))
}

func (g *growth) took(size int, all ...time.Duration) { g.add(size, float64(median(all))) }

// exponent fits cost = a + b·n^k, with a and b not negative, by least squares of the relative errors. Most costs have a
// part that does not grow: with it in the power, k would come out too low. It is false if the fit doesn't double from the
// first size to the last.
func (g *growth) exponent() (exponent float64, doubles bool) {
	const step, most = 0.01, 3
	least := math.Inf(1)
	for k := step; k <= most; k += step {
		var u, v, uu, uv, vv float64
		for i, c := range g.costs {
			if c > 0 {
				x, y := 1/c, math.Pow(float64(g.sizes[i]), k)/c
				u, v, uu, uv, vv = u+x, v+y, uu+x*x, uv+x*y, vv+y*y
			}
		}
		d := uu*vv - uv*uv
		a, b := (u*vv-v*uv)/d, (v*uu-u*uv)/d
		if a < 0 {
			a, b = 0, v/vv
		}
		if b < 0 {
			a, b = u/uu, 0
		}
		fit := func(size int) float64 { return a + b*math.Pow(float64(size), k) }
		var off float64
		for i, c := range g.costs {
			if c > 0 {
				off += math.Pow(fit(g.sizes[i])/c-1, 2)
			}
		}
		if off < least {
			least, exponent, doubles = off, k, fit(g.sizes[len(g.sizes)-1]) >= 2*fit(g.sizes[0])
		}
	}
	return exponent, doubles
}

// row tells of a cost: its exponent, and what it is at each size.
func (r *report) row(g *growth) *figure {
	value := "flat"
	if k, doubles := g.exponent(); doubles {
		value = fmt.Sprintf("n^%.2f", k)
	}
	var at []string
	for i, n := range g.sizes {
		at = append(at, thousands(n)+": "+g.write(g.costs[i]))
	}
	return r.figure(g.name, value, "").note("%s", strings.Join(at, "; "))
}

// flat is a row of what the agent must not be able to make grow: by no more than some from the first size to any other.
func (r *report) flat(g *growth, some float64) {
	most := g.costs[0]
	for _, c := range g.costs {
		most = max(most, c)
	}
	f := r.row(g).met(most-g.costs[0] <= some)
	f.goal = "≤ " + g.write(some) + " more"
}

// limit is a row that names one, and has what is said where it is reached.
func (r *report) limit(what, value, said string) {
	r.figure("the limit: "+what, value, "").note("%s", strings.Join(strings.Fields(strings.ReplaceAll(said, "|", "\\|")), " "))
}

// Ways to write a cost, of nanoseconds and of bytes.
func inTime(c float64) string {
	d := time.Duration(c)
	switch {
	case d < 100*time.Microsecond:
		return fmt.Sprintf("%.1f µs", c/1e3)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", c/1e6)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", c/1e6)
	}
	return fmt.Sprintf("%.1f s", c/1e9)
}

func inMemory(c float64) string { return mib(int64(c)) }

func aSecond(c float64) string { return fmt.Sprintf("%.1f ms/s", c/1e6) }

// spent is the processor time of all threads of a process (schedstat), which is finer than the ticks of cpuTime.
func (b *bench) spent(pid int) (sum time.Duration) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(tasks) == 0 {
		b.Fatalf("no threads of process %d: %v", pid, err)
	}
	for _, name := range tasks {
		var ns int64
		if data, err := os.ReadFile(name); err == nil { // else it has just ended
			fmt.Sscan(string(data), &ns)
		}
		sum += time.Duration(ns)
	}
	return sum
}

// restTime is once around what the keeper does by the clock (state.AttestEvery).
const restTime = 10 * time.Second

// over is the processor time a second of a process meanwhile.
func (b *bench) over(pid int, meanwhile func()) float64 {
	before, begun := b.spent(pid), time.Now()
	meanwhile()
	return float64(b.spent(pid)-before) / time.Since(begun).Seconds()
}

func rest() { time.Sleep(restTime) }
