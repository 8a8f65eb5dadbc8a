package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/agent-init/agent-init/internal/metric"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/pkg/audit"
)

// fake is a collector that answers as a test says.
type fake struct {
	mu     sync.Mutex
	answer func(batch []uint64) verdict
	got    map[uint64]int
	counts []string // of the metrics that came last
}

func (f *fake) measure(_ context.Context, m *metricdata.ResourceMetrics) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts = nil
	for _, one := range m.ScopeMetrics[0].Metrics {
		f.counts = append(f.counts, one.Name)
	}
	return nil
}

func (f *fake) send(_ context.Context, batch []sdklog.Record) verdict {
	var numbers []uint64
	for _, r := range batch {
		for _, a := range attributesOf(r) {
			if a.Key == "metadata.sequence" {
				numbers = append(numbers, uint64(a.Value.AsInt64()))
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.answer(numbers)
	if v.kind == taken {
		for _, n := range numbers {
			f.got[n]++
		}
	}
	return v
}

func (f *fake) close() {}

func (f *fake) answers(answer func([]uint64) verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

type rig struct {
	*testing.T
	dir    string
	log    *audit.Log
	to     *fake
	places chan stage.Place
	place  stage.Place
	why    string
	others chan stage.ExporterConfig
	ended  chan error
	stop   context.CancelFunc
}

func newRig(t *testing.T, o audit.Options) *rig {
	t.Helper()
	r := &rig{T: t, dir: t.TempDir(), to: &fake{got: map[uint64]int{}, answer: func([]uint64) verdict { return verdict{} }}}
	o.Dir = r.dir
	var err error
	if r.log, err = audit.Open(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.log.Close() })
	return r
}

func (r *rig) write(n int) {
	for range n {
		r.log.Write(audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: fmt.Sprintf("n%d.example", r.log.Head().Seq+1)})
	}
}

func (r *rig) start() {
	r.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r.stop, r.ended, r.places, r.others = stop, make(chan error, 1), make(chan stage.Place, 1<<16), make(chan stage.ExporterConfig, 1)
	s := &shipper{
		log: slog.New(slog.DiscardHandler), path: filepath.Join(r.dir, audit.FileName), open: os.Open, others: r.others,
		sink:   func(stage.ExporterConfig) (exporter, error) { return r.to, nil },
		config: stage.ExporterConfig{Endpoint: "https://x", Metrics: time.Millisecond}, place: r.place,
		meter: meter{tell: func(string) {}, ask: func(context.Context) ([]metric.Metric, error) {
			return []metric.Metric{{Name: "agent_init_x", Kind: "gauge", Points: []metric.Point{metric.Is(1)}}}, nil
		}},
		report: func(p stage.Place, why string) error {
			r.to.mu.Lock()
			r.why = why
			r.to.mu.Unlock()
			r.places <- p
			return nil
		},
	}
	ended := r.ended
	go func() { ended <- s.run(ctx) }()
	r.Cleanup(stop)
}

// until takes reports until one is as is says.
func (r *rig) until(is func(stage.Place) bool) stage.Place {
	r.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case p := <-r.places:
			if p.Seq < r.place.Seq || p.Sent < r.place.Sent || p.Lost < r.place.Lost || p.Refused < r.place.Refused {
				r.Fatalf("%+v after %+v", p, r.place)
			}
			if r.place = p; is(p) {
				return p
			}
		case err := <-r.ended:
			r.Fatalf("ended: %v", err)
		case <-late:
			r.Fatalf("waited in vain: %+v", r.place)
		}
	}
}

func (r *rig) end() {
	r.Helper()
	r.stop()
	if err := <-r.ended; err != nil {
		r.Fatal(err)
	}
}

func (r *rig) through() stage.Place {
	r.Helper()
	head := r.log.Head().Seq
	if r.place.Seq == head {
		return r.place
	}
	return r.until(func(p stage.Place) bool { return p.Seq == head })
}

// TestShip: each event is sent once, refused or lost, and counted as that, whatever the collector answers.
func TestShip(t *testing.T) {
	r := newRig(t, audit.Options{})
	r.write(2000)
	r.start()
	if p := r.through(); p.Sent != 2000 || p.Lost+p.Refused != 0 || len(r.to.got) != 2000 {
		t.Fatalf("%+v, %d arrived", p, len(r.to.got))
	}
	// Parts of what is too large are sent by themselves, down to the one event that is.
	large := uint64(2100)
	r.to.answers(func(batch []uint64) verdict {
		for _, n := range batch {
			if n == large || len(batch) > 64 {
				return verdict{kind: tooLarge, why: "too large"}
			}
		}
		return verdict{}
	})
	r.write(300)
	if p := r.through(); p.Refused != 1 || p.Sent != 2299 || r.to.got[large] != 0 {
		t.Errorf("too large: %+v", p)
	}
	// What was rejected in part, and what was refused, does not come again.
	r.to.answers(func(batch []uint64) verdict { return verdict{rejected: uint64(min(3, len(batch)))} })
	r.write(1)
	if p := r.through(); p.Refused != 2 || p.Sent != 2299 {
		t.Errorf("rejected: %+v", p)
	}
	r.to.answers(func([]uint64) verdict { return verdict{kind: refused, why: "HTTP 401 Unauthorized"} })
	r.write(1)
	if p := r.through(); p.Refused != 3 || r.why == "" {
		t.Errorf("refused: %+v, %q", p, r.why)
	}
	// While it is away, nothing is dealt with; then all is.
	r.to.answers(func([]uint64) verdict { return verdict{kind: again, why: "away"} })
	r.write(10)
	r.until(func(stage.Place) bool { r.to.mu.Lock(); defer r.to.mu.Unlock(); return r.why == "away" })
	if r.place.Seq != 2302 {
		t.Errorf("%+v while the collector is away", r.place)
	}
	r.to.answers(func([]uint64) verdict { return verdict{} })
	if p := r.through(); p.Sent != 2309 || p.Refused != 3 || p.Lost != 0 {
		t.Errorf("%+v", p)
	}
	r.end()
	for n, times := range r.to.got {
		if times != 1 {
			t.Errorf("event %d came %d times", n, times)
		}
	}
}

// TestShipLost: what the log has lost meanwhile is counted once, also by an exporter that begins in the middle.
func TestShipLost(t *testing.T) {
	r := newRig(t, audit.Options{MaxSize: 256 << 10, Files: 2})
	r.write(10)
	r.start()
	r.through()
	r.to.answers(func([]uint64) verdict { return verdict{kind: again, why: "away"} })
	r.write(1)
	r.until(func(stage.Place) bool { r.to.mu.Lock(); defer r.to.mu.Unlock(); return r.why == "away" })
	r.write(5000)
	r.end()
	r.to.answers(func([]uint64) verdict { return verdict{} })
	r.start()
	half := r.until(func(p stage.Place) bool { return p.Lost > 0 })
	r.end()
	r.start()
	p := r.through()
	if p.Lost != half.Lost || p.Lost == 0 || p.Sent+p.Lost != 5011 {
		t.Errorf("%+v after %+v, of 5011", p, half)
	}
	r.end()
}

// TestShipElsewhere: another configuration counts at once, also while one collector is waited for, and none sends nothing.
func TestShipElsewhere(t *testing.T) {
	r := newRig(t, audit.Options{})
	r.to.answers(func([]uint64) verdict { return verdict{kind: again, why: "away", after: time.Hour} })
	r.write(5)
	r.start()
	r.until(func(stage.Place) bool { r.to.mu.Lock(); defer r.to.mu.Unlock(); return r.why == "away" })
	r.others <- stage.ExporterConfig{}
	r.until(func(stage.Place) bool { r.to.mu.Lock(); defer r.to.mu.Unlock(); return r.why == "" })
	r.to.answers(func([]uint64) verdict { return verdict{} })
	r.others <- stage.ExporterConfig{Endpoint: "https://y"}
	if p := r.through(); p.Sent != 5 {
		t.Errorf("%+v", p)
	}
	r.end()
}
