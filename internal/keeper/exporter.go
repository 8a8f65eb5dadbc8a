package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/ids"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// exporterKeeper keeps one exporter running, which sends the audit log to a collector. It opens the log's files for it,
// and owns how far it has come. Nothing waits for it: what the collector has not got yet is in the log, and nowhere else.
// It is nil where there was no collector at the start. Then nothing of it is there.
type exporterKeeper struct {
	child
	book    *book
	guard   *guardKeeper
	uid     uint32
	group   ids.Group
	lookups budget.Pace
	opens   budget.Pace
	says    budget.Pace // of what it does to the log by itself
	counts  budget.Pace // of what was counted

	sockets *scrapeSockets
	inside  *inside // of a gateway

	changing sync.Mutex           // one configuration at a time
	told     stage.ExporterConfig // to the present exporter; its place is that of its start

	placed struct { // under mu
		stage.Place
		noted stage.Place // what is on the disk of it
		why   string      // as the log has it
		lost  uint64      // likewise
	}
}

const (
	exporterPatience = 5 * time.Second
	placeFile        = "telemetry.json" // beside the log
	farewell         = 2 * time.Second  // that the end of the container waits for a collector which takes what it is sent
)

// newExporterKeeper finds where to go on. The exporter is not started before the agent.
func newExporterKeeper(ctx context.Context, b *base, h guarded) (*exporterKeeper, error) {
	k := &exporterKeeper{
		child: child{base: b, who: "the exporter", sender: audit.TheExporter, meanwhile: "nothing is sent to the collector"},
		book:  h.book, guard: h.guard, uid: h.found.exporter.uid, group: h.found.exporter.group,
		lookups: budget.Pace{Burst: 16, Every: time.Second},
		opens:   budget.Pace{Burst: 1200, Every: 100 * time.Millisecond}, // as many files as a log may have
		says:    budget.Pace{Burst: 6, Every: 10 * time.Second},
		counts:  budget.Pace{Burst: 8, Every: time.Second}, inside: h.inside,
	}
	config, err := b.telemetryConfig(h.book.policy())
	if err != nil {
		return nil, err
	}
	k.told = config
	telemetry := h.book.policy().Settings.Telemetry
	if k.sockets, err = openScrapeSockets(ctx, telemetry); err != nil {
		return nil, err
	}
	k.door, k.gets = &k.sockets.lent, k.sockets.files
	if k.placed.Place, err = k.readPlace(); err != nil {
		return nil, err
	}
	k.placed.noted, k.placed.lost = k.placed.Place, k.placed.Lost
	program, err := exporterProgram()
	if err != nil {
		return nil, err
	}
	k.spec = stage.Own("exporter", k.uid, k.group.GID)
	k.spec.Argv = []string{program}
	k.part = func(s *state.State) partState {
		return partState{&s.Telemetry.OK, &s.Telemetry.Fault, &s.Telemetry.Restarts, &s.Telemetry.Seen}
	}
	k.keep(exporterPatience, wire.MaxText, k.spawn, k.serve)
	b.update(func(s *state.State) {
		s.Telemetry = state.Telemetry{UID: k.uid, Protocol: config.Protocol, To: k.book.policy().Collector(), Scraped: telemetry.Prometheus}
	})
	k.show()
	return k, nil
}

// identity is what the rules know the exporter by.
func (k *exporterKeeper) identity() identity {
	if k == nil {
		return identity{}
	}
	i := identity{uid: k.uid, gid: k.group.GID, at: k.sockets.at}
	if k.group.Any {
		i.gid = 0
	}
	return i
}

// begin starts the first exporter.
func (k *exporterKeeper) begin() {
	if k == nil {
		return
	}
	k.service.Begin()
	k.atEnd(func() error {
		k.sayFarewell()
		k.service.Stop(0)
		k.note()
		return nil
	})
}

// sayFarewell waits for the collector to have all, but not for long, and not for one that takes nothing.
func (k *exporterKeeper) sayFarewell() {
	for end := time.Now().Add(farewell); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		s := k.measured()
		if s.Telemetry.Trouble() != "" || s.Telemetry.To == "" || s.Telemetry.Behind(s.Audit.Head.Seq) == 0 {
			return
		}
	}
}

func (k *exporterKeeper) spawn(channel *os.File) (*reaper.Process, error) {
	dir, err := k.logDir()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	k.mu.Lock()
	told := k.told
	told.Place = k.placed.Place
	k.mu.Unlock()
	if told.Listeners = len(k.sockets.files); told.Listeners > 0 {
		if told.Refused, err = ownPrefixes(); err != nil {
			return nil, err
		}
		if k.inside != nil {
			told.Refused = append(told.Refused, k.inside.networks...)
		}
	}
	return k.child.spawn(channel, told, dir)
}

func (k *exporterKeeper) logDir() (*os.File, error) {
	return audit.OpenDir(filepath.Dir(k.status().Audit.File))
}

// serve answers the exporter.
func (k *exporterKeeper) serve(ctx context.Context, ch *wire.Channel) error {
	a := answering{who: k.who, patience: exporterPatience, log: k.log}
	a.answers = map[wire.Op]func(m, reply wire.Message) wire.Message{
		wire.OpLookup: func(m, reply wire.Message) wire.Message {
			return k.guard.lookup(ctx, firewall.Exporter, &k.lookups, m, reply)
		},
	}
	a.takes = func(m wire.Message) error {
		switch m.Op {
		case wire.OpReady:
			k.begun(ch)
			k.serves()
		case wire.OpPong:
			k.update(func(s *state.State) { s.Telemetry.Seen = time.Now() })
		case wire.OpOpen:
			return k.open(ch, m)
		case wire.OpShipped:
			k.shipped(m)
		case wire.OpMetrics:
			return k.counted(ch, m)
		case wire.OpCredentials:
			k.answered(m)
		default:
			return errors.New("the exporter sent an unknown request")
		}
		return nil
	}
	return a.serve(ch)
}

// open opens a file of the log, to be read.
func (k *exporterKeeper) open(ch *wire.Channel, m wire.Message) error {
	reply := wire.Message{Op: m.Op, ID: m.ID, Err: true}
	f, err := k.opened(m)
	if err != nil {
		if reply.Text = wire.PlainText(err.Error()); errors.Is(err, os.ErrNotExist) {
			reply.Flag = wire.NoFile
		}
		return ch.Send(reply, nil)
	}
	defer f.Close()
	reply.Err = false
	return ch.Send(reply, f)
}

func (k *exporterKeeper) opened(m wire.Message) (*os.File, error) {
	switch {
	case !k.opens.Take(time.Now()):
		return nil, errors.New("too many files")
	case !audit.IsFile(m.Name):
		return nil, fmt.Errorf("%q is no file of the log", m.Name)
	}
	dir, err := k.logDir()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return audit.OpenFile(dir, m.Name, os.O_RDONLY, 0)
}

// counted hands over what was counted.
func (k *exporterKeeper) counted(ch *wire.Channel, m wire.Message) error {
	k.update(func(s *state.State) { s.Telemetry.Unwanted = wire.PlainText(m.Text) })
	reply := wire.Message{Op: m.Op, ID: m.ID, Err: true}
	if !k.counts.Take(time.Now()) {
		reply.Text = "asked too often"
		return ch.Send(reply, nil)
	}
	s := k.measured()
	f, err := wire.Memfd("metrics", s.Metrics(k.config.Version, time.Now()))
	if err != nil {
		reply.Text = wire.PlainText(err.Error())
		return ch.Send(reply, nil)
	}
	defer f.Close()
	reply.Err = false
	return ch.Send(reply, f)
}

// shipped takes in how far the exporter has come. What it says counts for the status and for where its successor begins:
// it says nothing of the log that is not so, and takes nothing back.
func (k *exporterKeeper) shipped(m wire.Message) {
	head := k.measured().Audit.Head.Seq
	k.mu.Lock()
	p := &k.placed
	grows := func(n *uint64, to uint64) { *n = max(*n, min(to, head)) }
	grows(&p.Seq, m.Arg)
	grows(&p.Sent, m.Stats.Passed)
	grows(&p.Refused, m.Stats.Refused)
	grows(&p.Lost, m.Stats.Drops)
	k.mu.Unlock()
	k.update(func(s *state.State) { s.Telemetry.Why = wire.PlainText(m.Text) })
	k.show()
}

// show has the status know the place.
func (k *exporterKeeper) show() {
	k.mu.Lock()
	p := k.placed.Place
	k.mu.Unlock()
	k.update(func(s *state.State) {
		t := &s.Telemetry
		t.Seq, t.Sent, t.Lost, t.Refused = p.Seq, p.Sent, p.Lost, p.Refused
	})
}

// note writes the place beside the log, and into the log what has changed of whether the collector takes it. It is called
// once a second.
func (k *exporterKeeper) note() {
	if k == nil {
		return
	}
	t := k.status().Telemetry
	k.mu.Lock()
	p, noted, why, lost := k.placed.Place, k.placed.noted, k.placed.why, k.placed.lost
	k.mu.Unlock()
	if p != noted {
		if err := state.Dir(filepath.Dir(k.status().Audit.File)).Write(placeFile, 0o644, p); err != nil {
			k.log.Error("noting how far the log was sent", "error", err)
		} else {
			noted = p
		}
	}
	if (t.Why == "") != (why == "") && k.says.Take(time.Now()) {
		if why = t.Why; why == "" {
			k.guardian(audit.Info, "telemetry: "+t.To+" takes what it is sent again")
		} else {
			k.guardian(audit.Fault, "telemetry: "+t.To+" takes nothing, and the log waits: "+why)
		}
	}
	if p.Lost > lost && k.says.Take(time.Now()) {
		k.guardian(audit.Fault, "telemetry: the log had no more of "+text.Counted(p.Lost-lost, "event", "events")+" when it was their turn to be sent")
		lost = p.Lost
	}
	k.mu.Lock()
	k.placed.noted, k.placed.why, k.placed.lost = noted, why, lost
	k.mu.Unlock()
}

// readPlace is where an exporter of this log has come to. Without one, or with that of another log, it begins at what the
// log has.
func (k *exporterKeeper) readPlace() (p stage.Place, err error) {
	s := k.measured()
	err = state.Dir(filepath.Dir(s.Audit.File)).Read(placeFile, &p)
	switch {
	case err == nil && p.Seq <= s.Audit.Head.Seq:
		return p, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		k.log.Warn("how far the log was sent is not known: what it has is sent again", "error", err)
	case err == nil:
		k.log.Warn("the log is another one than that which was sent before", "sent_to", p.Seq, "head", s.Audit.Head.Seq)
	}
	oldest, err := audit.Oldest(s.Audit.File)
	if err != nil {
		return p, fmt.Errorf("find the oldest event: %w", err)
	}
	return stage.Place{Seq: max(oldest, 1) - 1}, nil
}

// push hands over the configuration if it is another one. An exporter that can't take it is replaced.
func (k *exporterKeeper) push() {
	if k == nil {
		return
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	policy := k.book.policy()
	config, err := k.telemetryConfig(policy)
	if err != nil { // what was good before goes on
		k.log.Error("telemetry goes on as before", "error", err)
		return
	}
	k.mu.Lock()
	same := reflect.DeepEqual(config, k.told)
	k.told = config
	k.mu.Unlock()
	if same {
		return
	}
	k.update(func(s *state.State) {
		s.Telemetry.To, s.Telemetry.Protocol = policy.Collector(), config.Protocol
		s.Telemetry.Why, s.Telemetry.Unwanted = "", ""
	})
	k.guardian(audit.Info, "telemetry: the collector, or what it is sent by, has changed")
	if _, ch, err := k.hand(wire.OpCredentials, "exporter", config); ch != nil && err != nil {
		k.log.Warn("the exporter is restarted to take other settings", "error", err)
		ch.Close()
	}
}

// watch takes over headers and authorities that have changed.
func (k *exporterKeeper) watch() { k.push() }
