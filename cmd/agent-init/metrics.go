package main

import (
	"context"
	"flag"
	"time"

	"github.com/agent-init/agent-init/internal/state"
)

func metricsCommand() command {
	return command{
		name: "metrics", alone: true,
		summary: "print counters and states in the text format of Prometheus",
		example: "agent-init metrics > /var/lib/node_exporter/agent-init.prom",
		run: func(_ context.Context, e environment, _ *flag.FlagSet, args []string) error {
			dir, err := state.Find()
			if err != nil {
				return state.NotRunning(err)
			}
			var s state.State
			if err := dir.Read(state.StatusFile, &s); err != nil {
				return state.NotRunning(err)
			}
			return s.WriteMetrics(e.stdout, version, time.Now())
		},
	}
}
