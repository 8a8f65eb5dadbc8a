package rig

import (
	"testing"
)

// Sub is w on the account of a subtest.
func Sub(w *World, t *testing.T) *World {
	c := *w
	c.T = t
	return &c
}
