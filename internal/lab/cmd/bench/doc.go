package main

// docHead and docTail surround the figures in docs/benchmarks.md.
const docHead = `# Benchmarks

<!-- Made by: sudo go run ./internal/lab/cmd/bench -write docs/benchmarks.md (after make build, with AGENT_INIT_BIN=bin/agent-init). -->

One command makes every figure of this page, in about six minutes, as root on a Debian machine; it needs no internet:

    make bench

What is compared is measured in the same run, in turns, in boxes of the same kind (namespaces of their own, joined to a lab's internet that
has the DNS, TLS and other servers), so the ratios hold on other machines where the times do not. Figures are medians; what is in the
last column beside them are the smallest and the largest, or details. All programs, the lab's servers and the load included, share the
machine's CPUs.
`

const docTail = `
## How it is measured

- **Start.** A shell prints the time and executes ` + "`agent-init run`" + ` in its place, as PID 1 of the box; the agent is a shell that prints the time. What the
  two shells take without agent-init between them is measured in the same rounds, and subtracted. The allowlists are exact names, one of which is
  ` + "`required`" + `: the self-test resolves it and completes a verified TLS handshake with it. The others are resolved in the background: up to
  a hundred meanwhile, more than that only once the self-test is over.
  Each start has a fresh box. What the kernel counts of the container's sockets and flows is read before they are
  listed, which walks tables of the whole machine. In turns with the build before that, under a load of about 30, with 10 names (quarter of 25 rounds): checking the container
  4.3 → 0.3 ms, sealing 9.5 → 2.7 ms, finding the user 5.4 → 0.7 ms, the rules 24.5 → 19.6 ms, all 203 → 112 ms.
- **Backends.** The starts are as above, in turns. A reload adds or removes an address entry, which replaces every rule; what ` + "`agent-init version`" + ` takes to
  be executed in the box is subtracted. Rules and addresses are loaded by one process in a namespace of its own; go-iptables gets the same rules as
  iptables-save tells them, for chains that nothing jumps to.
- **The shell script** (` + "`internal/lab/cmd/bench/init-firewall.sh`" + `) is the usual one of development containers: a ` + "`getent`" + ` for each name, an ` + "`iptables`" + `
  call for each address, then default drop. It proves nothing afterwards, and its addresses never change again. The lab's names have one address in
  each family; real ones have more, and every one more costs the script another call.
- **DNS.** dnsperf runs in the box as the agent's uid. Both servers have the same upstream, their caches on, and rules that track connections and
  drop by default, and dnsmasq adds each answer's addresses to the sets that its rules look at (` + "`--ipset`" + `). Each is asked in two ways: on its own
  port, and at the address that resolv.conf names, port 53 of which the kernel redirects, which is what agents get. The time to an answer is that
  of each query at a fixed rate, and the figure is the median of what several rounds had as their p99. No query went upstream meanwhile.
  The rate depends on the load: with 8 clients and 200 queries under way, as this was measured at first, the guard made 0.57 (own port) and 0.63
  (redirected) of dnsmasq's rate. The load was changed to 10 and 50 after that run; runs with it gave 0.65–0.67 and 0.68–0.82.
  The reason was found later: PID 1, which keeps the guard's sockets, had them in its own epoll, and was woken up by every second question
  as well (49,470 turns on a processor in 94,373 questions; now 54 in 99,670). In turns
  with the build before, on a machine with a load of 20 to 45 (median of four), an answer took 5.4 µs of CPU and not 6.8 (own port; the guard's and dnsperf's
  together; dnsmasq's 6.0), and 6.5 and not 8.0 (redirected; dnsmasq's 7.3). In a network namespace without rules, on a quiet machine, the resolver
  alone gave 287,000 answers a second, where dnsmasq gave 220,000. What is left are the rules: a packet over loopback takes its sender 0.7 µs of CPU without
  any, 1.2 with dnsmasq's few, and 1.6 with agent-init's (1.65 and 2.0 redirected). Letting established flows pass first would take 0.3 to 0.4 µs
  off each; it is not done, since the rules before say who may be in such a flow at all. Tried, and not kept: a thread that waits in recvmmsg(2) or
  poll(2) instead of the runtime's poller (290,000 to 300,000 answers a second where nothing else runs: 3 %; 14 % more under a load of 15, in runs that
  scatter by as much), and one processor for the guard (no difference).
- **The name gate.** The same server is asked under a name of the policy, through the gate, and at an address of the policy, past it, in turns. The link
  with a rate limits the server's end (tc-tbf); before that, only the two processors limit client, gate and server together. Bytes are spliced,
  but each of them passes through TCP twice more, and that takes the guard about a third of a second for each GiB: where client and server
  alone fill both processors, their share of these is what is missing. Tried, and without an effect on that figure: larger receive low-water marks (256 KiB
  to 1 MiB, so that it wakes up less often; pipes have 1 MiB already), and one processor for the guard. Where there is a processor to
  spare, or a link below some Gbit/s, nothing is lost.
  Of what the gate adds to a connection, a third of the guard's CPU is switching between threads, and a seventh the runtime's monitor; options of sockets are 1 %
  (perf, 1,600 connections). It takes 13 epoll_pwait(2) and 8 futex(2) (strace -c). One processor for the guard would take 11 % off the added time (0.32 for 0.35 ms, load 30), and with it
  all that the guard can do at once on larger machines: not kept.
- **Proxies.** squid, mitmproxy and haproxy are Debian's, with the allowlist that their documentation has for one name (` + "`internal/lab/cmd/bench/proxies.go`" + `), in boxes
  without rules; the gate's box has all of agent-init's. A client that has to ask makes one round trip more. Connections are made by eight clients in
  turns with as many past it. haproxy stands for what the same technique takes in C, without a policy that changes, leases, or an audit log of what it passes.
- **What others publish about theirs**, measured by them, on other machines and of other work; the first and the last break TLS, which the gate does not. OpenSandbox's
  egress with a transparent mitmproxy, beside the same without: 0.136 s and 0.143 s for a HEAD request at the median (7 ms more), 0.315 s and
  0.605 s on average, 3.64 and 1.90 requests a second (its components/egress/docs/benchmark.md). Istio's Envoy sidecar: 2.65 ms more at the 90th percentile
  (<https://istio.io/v1.13/docs/ops/deployment/performance-and-scalability>). Greyproxy, an intercepting proxy for agents: 3.5 to 4.6 ms more to
  the first byte (<https://mdview.io/s/89fe0910>). No published figure of one stream's throughput through a transparent proxy was found that compares with the above.
- **Memory.** ` + "`/proc/PID/smaps_rollup`" + `, once all names are resolved, their addresses leased, and five seconds have passed. Resident counts pages
  of the binary that both processes share twice.
  Two seconds after a start each process lets go of the pages of the binary that it has run through (` + "`cmd/agent-init/image.go`" + `), and those that are used come back: that
  took PID 1 and guard from 28.4 to 16.0 MiB, and a supervisor alone from 10.4 to 3.3 MiB. The pages stay in the page cache, and a cgroup is charged the same, until memory is short:
  then, with 300 MiB read in a cgroup of 40 or 50 MiB, 3.5 MiB of them and of others' were left as pages in use where it had been 6.9 MiB, and 1.2 where it had been 8.7 MiB for the supervisor
  (memory.stat, active_file). Most of what is private are the Go runtime's heaps. With 10,000 names the book of leases is the largest part of what is PID 1's own (7 of 12 MiB
  that are in use), and the policy the next (2.5 MiB). In turns with the build before, whose book had a map for each name and which listed leases by way of another: 90 → 60 MiB.
- **Supervision.** A program starts ` + "`/bin/true`" + ` through each init in turns, and waits for its end. agent-init runs without its firewall and guard; it
  drops all privileges on the way, in a second process of the same binary that becomes the command. What is resident are pages of the binary
  above all, which the kernel can drop; "private and dirty" is what is not.
  What is left is 1.2 ms for each of the two processes to begin and to end (` + "`agent-init version`" + `, more than ` + "`/bin/true`" + `), of which the initialisation of packages is 0.4 ms at best
  (` + "`GODEBUG=inittrace=1`" + `: the largest are yaml, 0.06 ms, and dns, 0.03 ms); the next, the state that is written as JSON, is a tenth. One processor for the runtime changes nothing. **The goal of the start is missed.**
- **A session.** Direct, tmux (its own server, without a configuration) and agent-init run the same command on a terminal of the same size, in turns. An
  echo is that of a cat on a terminal in raw mode, for 900 single bytes 8 ms apart, typed and read by the benchmark at the outer end. The other cat prints lines of
  up to 165 characters, and the shell around it takes the time. agent-init runs as PID 1 of namespaces of its own, without the firewall.
  Between a key and its echo six processes have to wake up, and tmux needs four: it hands the person's terminal to its server, which agent-init's
  never gets: it reads what the agent prints, and if that took it over, it could go on reading what the person types behind the detaching.
  How long a process takes to wake up depends on how deep the processors sleep. With nothing else running the ratio was 1.7 to 1.9 in five runs, with this client and with the one
  before it, which waited in poll(2) and not in an epoll behind the Go runtime's poller; with other work going on, and processors awake, from 0.45 to 1.7.
  For each key the client takes 90 to 100 µs of a processor, in 6 turns on one; the one before took 140 µs in 11 (900 keys in turns,
  /proc/PID/schedstat). **The goal is missed**; 0.4 ms is not felt. Tried, and worse: waiting for the echo with the thread in the kernel and its processor kept
  (180 µs a key: the runtime's monitor looks every 20 µs), one processor for the client, for the server or for both (no difference), and staying awake for up to
  200 µs to see the echo come: sched_yield(2) does not give way to processes of other sessions, which the kernel's autogroups keep apart (sched(7)).
- **Reaping.** ` + "`internal/lab/cmd/bench/orphans.sh`" + ` is the agent. PID 1 says in its log what it reaps; that is counted, and PID 1's children are looked for in /proc.
`
