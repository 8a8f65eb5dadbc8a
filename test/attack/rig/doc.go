// Package rig has what the packages of test/attack share. Their tests try, from inside of a confined container, to get out,
// or use what must work all the same. The verdict is what arrived on the far side.
//
// Each test runs over nftables, with agent-init as PID 1. Also declares where else.
package rig
