package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/inspect"
)

// hintCommand is for images/shell.bash, which calls it when a command has ended.
func hintCommand() command {
	return command{
		name: "hint", synopsis: "BEGAN PID STATUS fetches|other",
		summary: "say what was refused to a command (for shells, see images/shell.bash)",
		run: func(_ context.Context, e environment, args []string) error {
			h, err := hintOf(args)
			if err != nil {
				return fault.New(fault.Usage, `agent-init hint "$EPOCHREALTIME" "$$" "$?" fetches`, "hint: %w", err)
			}
			return h.Tell(e.stdout)
		},
	}
}

// hintOf reads when a command began, the shell that has run it, what it has exited with, and what it is about. The point of bash's
// EPOCHREALTIME is that of the locale.
func hintOf(args []string) (h inspect.Hint, err error) {
	if len(args) != 4 {
		return h, errors.New("it takes four arguments")
	}
	whole, fraction, _ := strings.Cut(strings.Replace(args[0], ",", ".", 1), ".")
	seconds, err := strconv.ParseUint(whole, 10, 40)
	if err != nil {
		return h, err
	}
	micros, err := strconv.ParseUint((fraction + "000000")[:6], 10, 32)
	if err != nil {
		return h, err
	}
	h.Since = time.Unix(int64(seconds), int64(micros)*int64(time.Microsecond))
	h.Beyond, err = strconv.Atoi(args[1])
	h.Failed, h.Fetches = args[2] != "0", args[3] == "fetches"
	return h, err
}
