package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/agent-init/agent-init/internal/metric"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
)

// keeper is what the exporter asks of the process that started it.
type keeper struct {
	channel *wire.Channel
	asks    *wire.Asks
	others  chan stage.ExporterConfig // the last one that has come, if any

	fetching sync.Mutex // one file at a time

	mu    sync.Mutex
	files map[uint32]*os.File // that came with answers
	why   string              // the collector did not take the last metrics
}

func newKeeper(ch *wire.Channel) *keeper {
	return &keeper{channel: ch, asks: wire.NewAsks(ch), others: make(chan stage.ExporterConfig, 1), files: map[uint32]*os.File{}}
}

// serve handles what the keeper sends, until it goes.
func (k *keeper) serve() error {
	for {
		m, file, err := k.channel.Receive()
		if errors.Is(err, wire.ErrMalformed) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %w", stage.ErrKeeperGone, err)
		}
		switch m.Op {
		case wire.OpLookup:
			k.asks.End(m)
		case wire.OpOpen, wire.OpMetrics:
			k.mu.Lock()
			if file != nil {
				k.files[m.ID], file = file, nil
			}
			k.mu.Unlock()
			k.asks.End(m)
		case wire.OpPing:
			err = k.channel.Deliver(wire.Message{Op: wire.OpPong, ID: m.ID})
		case wire.OpCredentials:
			err = k.channel.Deliver(wire.Message{Op: wire.OpCredentials, ID: m.ID, Err: !k.take(file)})
		}
		if file != nil {
			file.Close()
		}
		if err != nil {
			return err
		}
	}
}

// take has the shipper go on with another configuration.
func (k *keeper) take(file *os.File) bool {
	var c stage.ExporterConfig
	if file == nil || wire.ReadMemfd(file, &c) != nil {
		return false
	}
	select {
	case <-k.others: // an older one that nobody has taken
	default:
	}
	k.others <- c
	return true
}

// open has the keeper open a file of the log.
func (k *keeper) open(path string) (*os.File, error) {
	name := filepath.Base(path)
	f, err := k.fetch(context.Background(), wire.Message{Op: wire.OpOpen, Name: name})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f, nil
}

// fetch asks the keeper for a file.
func (k *keeper) fetch(ctx context.Context, m wire.Message) (*os.File, error) {
	k.fetching.Lock()
	defer k.fetching.Unlock()
	k.drop()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	m, err := k.asks.Ask(ctx, m)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	f := k.files[m.ID]
	delete(k.files, m.ID)
	k.mu.Unlock()
	switch {
	case m.Flag == wire.NoFile:
		return nil, fs.ErrNotExist
	case m.Err || f == nil:
		return nil, errors.New(m.Text)
	}
	return f, nil
}

// drop closes what came after nobody waited for it any more.
func (k *keeper) drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, f := range k.files {
		f.Close()
		delete(k.files, id)
	}
}

// counted has the keeper say what was counted.
func (k *keeper) counted(ctx context.Context) (out []metric.Metric, err error) {
	k.mu.Lock()
	why := k.why
	k.mu.Unlock()
	f, err := k.fetch(ctx, wire.Message{Op: wire.OpMetrics, Text: why})
	if err != nil {
		return nil, fmt.Errorf("ask for the metrics: %w", err)
	}
	defer f.Close()
	return out, wire.ReadMemfd(f, &out)
}

// unwanted has the keeper know, when it is asked the next time, why the collector did not take the metrics.
func (k *keeper) unwanted(why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.why = wire.PlainText(why)
}

// report says how far the exporter has come, and why it comes no further, if it doesn't.
func (k *keeper) report(p stage.Place, why string) error {
	m := wire.Message{Op: wire.OpShipped, Arg: p.Seq, Text: wire.PlainText(why)}
	m.Stats.Passed, m.Stats.Refused, m.Stats.Drops = p.Sent, p.Refused, p.Lost
	return k.channel.Deliver(m)
}
