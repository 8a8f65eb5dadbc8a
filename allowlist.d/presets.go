// Package allowlist holds the presets that @NAME in a policy stands for: one
// file NAME.txt each, compiled in. A preset allows only; what an agent can do
// without (telemetry, updates) is there as a comment.
package allowlist

import "embed"

// Files holds NAME.txt for every preset.
//
//go:embed *.txt
var Files embed.FS
