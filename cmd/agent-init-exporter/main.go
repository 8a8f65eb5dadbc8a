// The exporter sends the audit log to a collector, by OpenTelemetry's protocol. It is a program of its own since what
// speaks that protocol is as large as all of agent-init.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// The descriptors that it is given.
const (
	configFD = 3 + iota // see config
	logFD               // the directory of the audit log
	cursorFD            // a file of its own: how far it has come
)

const maxConfig = 1 << 20

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, log)
	stop()
	if err != nil {
		log.Error("the exporter ends", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, log *slog.Logger) error {
	f := os.NewFile(configFD, "configuration")
	data, err := io.ReadAll(io.LimitReader(f, maxConfig))
	f.Close()
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	var c config
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	sink, err := c.open(ctx)
	if err != nil {
		return err
	}
	s := shipper{
		log: log, path: fmt.Sprintf("/proc/self/fd/%d/%s", logFD, c.File), cursor: cursor{os.NewFile(cursorFD, "cursor")},
		sink: sink, records: newRecords(c.Resource),
	}
	return s.run(ctx)
}
