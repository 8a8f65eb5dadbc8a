package main

// docHead and docTail surround the figures in docs/benchmarks.md.
const docHead = `# Benchmarks

<!-- Made by: sudo go run ./internal/lab/cmd/bench -write docs/benchmarks.md (after make build, with AGENT_INIT_BIN=bin/agent-init). -->

One command makes every figure of this page, in less than four minutes, as root on a Debian machine; it needs no internet:

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
- **The shell script** (` + "`internal/lab/cmd/bench/init-firewall.sh`" + `) is the usual one of development containers: a ` + "`getent`" + ` for each name, an ` + "`iptables`" + `
  call for each address, then default drop. It proves nothing afterwards, and its addresses never change again. The lab's names have one address in
  each family; real ones have more, and every one more costs the script another call.
- **DNS.** dnsperf runs in the box as the agent's uid. Both servers have the same upstream, their caches on, and rules that track connections and
  drop by default, and dnsmasq adds each answer's addresses to the sets that its rules look at (` + "`--ipset`" + `). Each is asked in two ways: on its own
  port, and at the address that resolv.conf names, port 53 of which the kernel redirects, which is what agents get. The time to an answer is that
  of each query at a fixed rate, and the figure is the median of what several rounds had as their p99. No query went upstream meanwhile.
  The rate depends on the load: with 8 clients and 200 queries under way, as this was measured at first, the guard made 0.57 (own port) and 0.63
  (redirected) of dnsmasq's rate. The load was changed to 10 and 50 after that run; runs with it gave 0.65–0.67 and 0.68–0.82. The goal of 0.7 is
  missed in most of them.
- **The name gate.** The same server is asked under a name of the policy, through the gate, and at an address of the policy, past it, in turns. The link
  with a rate limits the server's end (tc-tbf); before that, only the two processors limit client, gate and server together.
- **Memory.** ` + "`/proc/PID/smaps_rollup`" + `, once all names are resolved, their addresses leased, and five seconds have passed. Resident counts pages
  of the binary that both processes share twice.
- **Supervision.** A program starts ` + "`/bin/true`" + ` through each init in turns, and waits for its end. agent-init runs without its firewall and guard; it
  drops all privileges on the way, in a second process of the same binary that becomes the command. Most of what is resident are pages of the binary,
  which the kernel can drop; "private and dirty" is what is not.
- **Reaping.** ` + "`internal/lab/cmd/bench/orphans.sh`" + ` is the agent. PID 1 says in its log what it reaps; that is counted, and PID 1's children are looked for in /proc.
`
