// Package nft holds a plan in nf_tables: one table, over netlink, each change of it one
// transaction.
package nft
