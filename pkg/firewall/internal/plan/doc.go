// Package plan computes, in pure code, which packets pass: a Plan of sets and chains
// that each backend writes in its own language. Nothing here speaks to the kernel.
package plan
