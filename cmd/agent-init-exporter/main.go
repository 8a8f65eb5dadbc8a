// The exporter sends the audit log to a collector, by OpenTelemetry's protocol. It is a program of its own since what
// speaks that protocol is as large as all of agent-init. The keeper starts it, without a privilege; it opens no file.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/privdrop"
)

// logDir is the descriptor of the log's directory, behind the channels: to see there when a file is another one.
const logDir = stage.FDFiles + 2

var version = "dev" // set when it is built, as agent-init's

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "agent-init-exporter:", err)
		os.Exit(1)
	}
}

func run() error {
	var c stage.ExporterConfig
	conn, err := stage.Told(&c, fault.New(fault.Usage, "set telemetry in policy.yaml", "the exporter is started by agent-init itself"))
	if err != nil {
		return err
	}
	if c.Version != version {
		return fmt.Errorf("this is version %q, and agent-init is %q: take both out of one release", version, c.Version)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: c.LogLevel}))
	_ = time.Now().Local().String() // the time zone, before files are out of reach
	if err := privdrop.Serve(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	k := newKeeper(wire.Open(conn, wire.MaxText))
	s := &shipper{
		log: log, config: c, place: c.Place, others: k.others, open: k.open, report: k.report,
		meter: meter{ask: k.counted, tell: k.unwanted, since: c.Started},
		path:  fmt.Sprintf("/proc/self/fd/%d/%s", logDir, audit.FileName),
		sink: func(c stage.ExporterConfig) (exporter, error) {
			return newSink(ctx, c, &collector{ask: k.asks.Ask, host: c.Host, port: c.Port})
		},
	}
	go func() { cancel(k.serve()) }()
	go func() { cancel(s.run(ctx)) }()
	if c.Listeners > 0 {
		asked := &scraped{refused: c.Refused, ask: k.counted}
		go func() { cancel(asked.serve(ctx, c.Listeners)) }()
	}
	if err := k.channel.Send(wire.Message{Op: wire.OpReady}, nil); err != nil {
		return fmt.Errorf("tell the keeper: %w", err)
	}
	return stage.Serve(ctx)
}
