package ui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/launch"
)

// The bounds of a command in a container: what stands in its image may print without end, or never end.
const (
	insideTime = 15 * time.Second
	lastTime   = 5 * time.Second // for what it has printed, once it has ended
	maxPrinted = 1 << 20
)

// bounded keeps the first bytes that are written to it, and fails then, which ends the command that writes.
type bounded struct {
	kept []byte // no bytes.Buffer inside: its ReadFrom, which io.Copy prefers, would know no bound
	max  int
}

var errTooMuch = errors.New("it printed more than anybody would read")

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if len(b.kept)+len(p) > b.max {
		return 0, errTooMuch
	}
	b.kept = append(b.kept, p...)
	return len(p), nil
}

// run is what a command of agent-init's prints in a container, and what it says beside that, such as warnings.
func run(ctx context.Context, e launch.Engine, id string, limit time.Duration, args ...string) (out, beside []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd, err := e.Exec(ctx, false, id, args...)
	if err != nil {
		return nil, nil, err
	}
	printed, complaint := bounded{max: maxPrinted}, bounded{max: 16 << 10}
	cmd.Stdout, cmd.Stderr = &printed, &complaint
	cmd.WaitDelay = lastTime
	err = cmd.Run()
	switch said := strings.TrimSpace(string(complaint.kept)); {
	case ctx.Err() != nil:
		err = fmt.Errorf("it did not answer within %v", limit)
	case err != nil && said != "":
		err = errors.New(strings.ReplaceAll(said, "\n", "; "))
	}
	return printed.kept, complaint.kept, err
}
