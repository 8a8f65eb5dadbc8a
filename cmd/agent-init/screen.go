package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// screen writes lines until one can't be written.
type screen struct {
	w   io.Writer
	err error
}

func (s *screen) line(format string, args ...any) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, format+"\n", args...)
	}
}

func (s *screen) row(name, format string, args ...any) {
	s.line("  %-12s "+format, append([]any{name}, args...)...)
}

// colour is for terminals only, and NO_COLOR (no-color.org) turns it off.
func colour(e environment) bool {
	f, ok := e.stdout.(*os.File)
	if !ok || environMap(e.env)["NO_COLOR"] != "" {
		return false
	}
	return isTerminal(f)
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
