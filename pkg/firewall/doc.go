// Package firewall confines everything in this network namespace to a plan:
// which addresses and ports may be reached, and nothing else. It speaks
// addresses, ports and uids; names and their policy are known elsewhere.
//
// NewPlan computes a Plan in pure code from a Config. A Firewall, made by
// Open, carries it into the kernel as one table named "agent-init" and reads
// back what it did. The order of use is Open, Seal, Apply, then Lease and
// Revoke as names are resolved and policies change, with Verify in between.
//
// Nothing here ever opens the network: Close leaves every rule in place, and
// each failure leaves the kernel as closed as it was.
package firewall
