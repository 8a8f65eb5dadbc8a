package main

import (
	"testing"

	"github.com/agent-init/agent-init/internal/lab/apart"
)

func TestMain(m *testing.M) { apart.Main(m) }
