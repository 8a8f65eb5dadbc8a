// Package xtables holds a plan in the tables of iptables, legacy or nft, and in kernel
// ipsets; and, where a kernel has nothing else, a reduced plan in those tables alone.
package xtables
