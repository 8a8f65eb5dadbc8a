// Package lab is a hermetic internet for tests, benchmarks and the demo.
//
// A Lab is a set of unnamed network namespaces: one "internet", in which every
// IPv4 and IPv6 address there is belongs to the lab's own servers, and one per
// Box, joined to it by a veth pair. Nothing is pinned by name and no packet can
// leave: when the process ends, however it ends, all of it is gone, but for
// directories agent-init-lab-* in the temporary one and in /sys/fs/cgroup if it
// had no time to. The machine's own network namespace is never touched. It needs root.
//
// What listens on every address of the internet:
//
//   - DNS on 53 UDP and TCP (DNS): answers as told, logs every query.
//   - HTTP on 80, TLS with HTTP/1.1 and HTTP/2 on 443 (Web): certificates for
//     whatever SNI comes, from the lab's CA, which every Box trusts.
//   - Every other TCP port: a sink that logs (Conns) and echoes.
//   - Every other UDP port: an echo.
//   - ICMP echo, by the kernel.
//
// A Box (NewBox) is the shape of a container: root filesystem of its own (an
// overlay over this machine's, thrown away), fresh /proc, /sys, /dev and tmpfs
// where a container has them, and pid, mount, uts and ipc namespaces. Start
// runs its PID 1 with the capabilities that "docker run --cap-drop=ALL
// --cap-add=…" would give; Exec does what "docker exec" does; Poke runs the
// attacker's tool (internal/lab/cmd/poke) inside and parses its verdict.
//
// The internet can also be made of a namespace that a container engine lives in
// (Options.Within), and its containers be looked at as boxes (Attach).
//
// # Who judges
//
// The far side does. Packets returns what really left a box, as seen on the
// internet's end of its veth, after a barrier which makes sure that all that
// was sent before the call is in. Queries, Conns and Requests say what arrived
// at the servers.
//
//	pkts := box.Packets(lab.Routed, lab.ToAddr("8.8.8.8"))
//	if len(pkts) != 0 { t.Errorf("escaped: %v", pkts) }
//
// # Names and addresses
//
// Box n (from 0) is 172.30.n.2/24, fd00:30:n::2/64 and 2001:db8:30:n::2/64; its
// gateway is .1 (::1, fe80::1), a neighbour .3 (::3), itself fe80::2. All of
// them answer as every address does. Its resolv.conf names
// Upstream4 and Upstream6. Every name of Names is served from the start; tests
// add theirs by DNS.Set. Addresses of names are picked from the global unicast
// ranges, since documentation ranges are special-use and may be refused for it.
//
// # Concurrency and failure
//
// All methods are safe for concurrent use, but those that can fail call
// TB.Fatalf and so belong on the test's own goroutine. What a test starts
// within a box may fail in any way: that is a Result, not a failure of the lab.
package lab
