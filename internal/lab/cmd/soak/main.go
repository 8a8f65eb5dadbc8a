// Command soak draws the samples of a soak, and puts its figures into a page.
//
// Usage: soak [-picture FILE.svg] [-page FILE.md] SAMPLES.csv
//
// Without -page, it prints the figures. It exits 1 if something grew by more than its bound.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"

	"github.com/agent-init/agent-init/internal/lab/soak"
)

func main() {
	picture := flag.String("picture", "", "draw the samples into this `file`")
	page := flag.String("page", "", "put the figures into this `file`")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(64)
	}
	if err := run(flag.Arg(0), *picture, *page); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run(samples, picture, page string) error {
	data, err := os.ReadFile(samples)
	if err != nil {
		return err
	}
	s, err := soak.Read(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("%s: %w", samples, err)
	}
	if picture != "" {
		var drawn bytes.Buffer
		if err := s.Picture(&drawn); err != nil {
			return err
		}
		if err := os.WriteFile(picture, drawn.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if page == "" {
		fmt.Print(s.Table())
	} else {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		with, err := s.Insert(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		if err := os.WriteFile(page, []byte(with), 0o644); err != nil {
			return err
		}
	}
	if faults := s.Judge(); len(faults) > 0 {
		return fmt.Errorf("%v", faults)
	}
	return nil
}
