// Package nfnetlink speaks to netfilter over netlink for what no library says with
// deadlines or in bounded memory, and explains the kernel's errors.
package nfnetlink
