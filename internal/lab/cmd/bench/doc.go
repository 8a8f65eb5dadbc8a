package main

import _ "embed"

// docHead and docTail surround the figures in docs/benchmarks.md.
var (
	//go:embed head.md
	docHead string
	//go:embed tail.md
	docTail string
)
