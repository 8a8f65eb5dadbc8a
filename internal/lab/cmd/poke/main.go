// Command poke tries one thing from inside of a container and says in one line
// of JSON how it went: {"op","ok","err","errno","detail","ms"}. ok means that
// the operation did what an attacker, or an honest program, wanted from it.
// It exits 0 whenever it printed that line, and 2 for a usage error.
//
// Usage: poke OP [flags] ARG…, where flags come before arguments.
//
// Connections (ADDR is a literal IP:PORT, IPv6 in brackets, zones allowed):
//
//	tcp ADDR                 connect; -send TEXT, then read: ok if an answer came. -mptcp, -piece N (send N bytes at a time, -pause D between),
//	                         -all (read to the end, also if nothing was to be sent),
//	                         -from PORT binds the source port, -source ADDR both,
//	                         -hold D (stay connected, send every 100 ms, ok if it lived on, -oneway: without waiting for answers);
//	                         -proxy URL (by a proxy of http:// or socks5://, env:NAME is that of a variable; ADDR may be a name then),
//	                         -bare (speak to the proxy itself: ADDR is left out of account)
//	udp ADDR                 send -send TEXT (default "poke"); ok if an answer came; -noreply: ok if sent;
//	                         -from PORT binds the source port, -source ADDR both; -size N pads
//	connect FAM TYPE PROTO ADDR   socket(2) and connect(2), and -send TEXT: sctp, dccp, udplite, mptcp, v4-mapped…
//	socket FAM TYPE PROTO    socket(2) only; names (inet, packet, vsock, raw, …) or numbers
//	loop ADDR                -n N connects, -c at once; -name NAME resolves it each time first (ADDR is then :PORT),
//	                         "{n}" in NAME is replaced by the number; -spread N addresses from ADDR on
//	flood ADDR               -n N datagrams without waiting; ok if all were handed to the kernel; -spread N addresses
//	idle ADDR                opens -n N TCP connections and holds them for -hold D; ok if all opened
//	scan HOST PORTS          which of the ports ("1-1024,2375") can be connected to; ok if any. -udp: which answer,
//	                         -c at once, -timeout D for each
//	listen ADDR              accepts for -for D and echoes; ok if anyone connected
//	recv ADDR…               receives datagrams until one says "end"; ok if another came before. -for D at most,
//	                         -to ADDR: send one there first
//	join GROUP IFACE         become a member of a multicast group, for -hold D
//	relay ADDR TARGET        accepts for -for D and pipes each connection to TARGET
//
//	urgent ADDR              connect, and send -send TEXT with its byte -at N as urgent data; ok if an answer came
//	fastopen ADDR            connect with -send TEXT in the first packet; ok if an answer came
//	seize TABLE:PORT…        binds them (tcp, tcp6, udp, udp6), by every means to share a port, for -for D; ok if any was had
//
// tcp, udp, connect, unix, urgent and fastopen take -esc TEXT (with escapes as in C) and -hex HEX in place of -send TEXT (in parts, if it is longer than an argument may be), -opt LEVEL:NAME:VALUE (numbers, setsockopt(2) before
// connecting; SO_MARK is 1:36:N; hex… for longer values) and -timeout D.
//
// Names:
//
//	resolve NAME             by resolv.conf and hosts; ok if there is an address
//	dns SERVER NAME TYPE     a query; ok if NOERROR with an answer. -tcp, -edns CODE:HEX, -hold D (keep the socket),
//	                         -opcode, -class, -norecurse, -raw HEX (that instead of a query; NAME and TYPE are left out),
//	                         -n N and -c N: load, "{n}" in NAME is replaced by the number
//	http URL                 a request; ok if the status is below 400. -sni, -host, -addr ADDR (connect there),
//	                         -ca FILE, -insecure, -method, -body, -h1, -size N (body of N bytes), -follow (redirects),
//	                         -header LINE (of the head, as often as you like), -proxy as for tcp
//	stream URL               a request whose answer is read to its end and counted; ok if that was orderly
//	tls ADDR                 TLS connections, -c N at once, all of them open before each asks, and that -n N times; -shake N: so many handshakes at once;
//	                         ok if all were answered
//	upgrade URL              to a protocol that echoes; ok if -n N messages came back;
//	                         -frames HEX: these frames of a WebSocket instead, ok if the server closed in its turn
//	speak HOST               -esc TEXT over TLS, as it is; ok if an answer of 200 came
//	frames HOST              HTTP/2 by the frame: -field "NAME: VALUE"… (with escapes) and -esc BODY are a request, -split has each field in a
//	                         frame of its own; before it -flood KIND (reset, continuation, bomb, settings, ping, empty), -n N frames; ok if it was answered by 200
//	fill URL                 posts without an end, each over a connection of HTTP/2 of its own, -n N at once; ok if nobody takes any more of them
//
// stream, tls, upgrade, speak, frames and fill take -sni, -addr, -ca, -insecure, -min and -max (versions of TLS).
//
// Below sockets:
//
//	ping ADDR                ICMP echo; -raw (raw socket), -size N; ADDR without port; -type N: another message,
//	                         without waiting for an answer
//	rawip PROTO ADDR         a packet of IP protocol PROTO; -send TEXT, -hex HEX; ADDR without port;
//	                         a range of protocols ("1-254"): one of each, ok if any was sent
//	fragsyn ADDR             a TCP SYN in 8-byte IP fragments (raw socket); -nodefrag
//	fragudp ADDR             a UDP datagram of -size N (default 4000) bytes, which the kernel fragments
//	guess ADDR               a DNS message with each identifier, to ADDR and the 65535 addresses after it
//	forge ADDR IP            be the DNS server at ADDR of loopback, for -for D, and answer everything with IP
//	usurp ADDR IP            for -for D, wait until the DNS server at ADDR is gone, be it, and answer everything with IP;
//	                         port 0: the ports that are bound there now; says "watching" and "seated" on stderr
//	prime ADDR               a datagram to ADDR from every port
//	packet IFACE HEX…        frames by AF_PACKET
//
// The machine:
//
//	read PATH, write PATH    -data TEXT, -append; connect there with: unix PATH (@NAME is abstract; -send TEXT)
//	self                     /proc/self/status, open descriptors, environment
//	syscall NAME|NUMBER [ARG…]   ok if it returned no error; arguments are numbers
//	setuid UID, setgid GID   ok if the id was taken
//	kill PID SIGNAL          ok if the signal was sent
//	ptrace PID, vmwrite PID  attach; process_vm_writev of nothing much
//	getfd PID FD             a copy of its descriptor, by pidfd_getfd
//	harry SIGNAL             sends it to every process of agent-init's that it may, for -for D; ok if there was any
//	link PID                 makes links of a network between this namespace and that of the process
//	lock PATH…               locks files, and watches them, for -hold D; ok if any was locked
//	hoard PATH               opens -n N connections to a unix socket, sends -esc TEXT on each and holds them for -hold D
//	nft                      list the nftables rules, then try to flush them; ok if the flush went through
//
// Keys:
//
//	model ROUTE PATH         the API of a model ("anthropic", "openai", "gemini"), where the agent's variables say that it is, with the key that they
//	                         have; else at ROUTE.model.test. -method, -body, -gzip, -header, -host, -key KEY, -keyless
//	hunt HEX…                secrets, each reversed and in hex; ok if one is found. -in environ,memory,files, -n N (until so many reads were made)
//
// Around another operation, whose result becomes Detail["result"]:
//
//	as UID[:GID] OP…         with these ids; ok if OP could be started
//	run PROGRAM ARG…         another program; ok if it ended with 0 within 10 s
//	spawn NAME OP…           in a session of its own, without waiting for it
//	collect NAME             waits for what was spawned, and says how that went
//	unshare FLAGS OP…        in new namespaces: user,net,mount,pid,ipc,uts joined by commas
//	setns PATH OP…           in the namespace of /proc/PID/ns/NAME
//
// Not operations, and without a verdict of their own:
//
//	obey                     does what comes in by standard input, an array of arguments in JSON on each line, until that ends,
//	                         and prints what each operation prints: those that leave nothing behind itself, others by a child
//	without-netlink PROTO CMD…  becomes the command, where no netlink socket of protocol PROTO can be opened; "all": of none
//
// "poke -patient OP …" waits a minute wherever OP would wait for less, by default or by its -timeout: for what has to
// work, however slow the machine is.
//
// A new operation is a func(args) (detail, error) and a line in the table ops.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type detail = map[string]any

// op tries something. detail is shown whether or not there is an error.
type op func(args []string) (detail, error)

func ops() map[string]op {
	return map[string]op{
		"tcp": tcp, "udp": udp, "connect": connect, "socket": socket, "loop": loop, "flood": flood,
		"idle": idle, "listen": listen, "relay": relay, "scan": scan, "recv": recv, "join": join,
		"resolve": resolve, "dns": query, "http": fetch, "stream": stream, "tls": secure, "upgrade": upgrade, "speak": speak, "frames": frames, "fill": fill,
		"ping": ping, "rawip": rawIP, "fragsyn": fragSYN, "forge": forge, "usurp": usurp, "prime": prime, "guess": guess, "fragudp": fragUDP, "packet": packet,
		"read": readFile, "write": writeFile, "unix": unixSocket, "self": self, "syscall": anySyscall,
		"setuid": setuid, "setgid": setgid, "kill": kill, "ptrace": ptrace, "vmwrite": vmWrite, "getfd": getFD, "hoard": hoard, "nft": nft, "model": askModel, "hunt": hunt,
		"urgent": urgent, "fastopen": fastOpen, "seize": seize, "lock": lock, "link": link, "harry": harry, "spawn": spawn, "collect": collect, "as": as, "run": program, "unshare": unshare, "setns": setns, "without-netlink": withoutNetlink,
	}
}

// errUsage marks what is wrong with the command line.
var errUsage = errors.New("usage")

func usage(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errUsage}, args...)...)
}

func main() {
	args := os.Args[1:]
	if len(args) == 1 && args[0] == "obey" {
		obey()
		return
	}
	if err := try(args); err != nil {
		fmt.Fprintln(os.Stderr, "poke:", err)
		os.Exit(2)
	}
}

// try does one operation and prints its verdict. It returns an error if there is none.
func try(args []string) error {
	if waits = len(args) > 0 && args[0] == "-patient"; waits {
		args = args[1:]
	}
	if len(args) < 1 || ops()[args[0]] == nil {
		return usage("poke [-patient] OP [flags] ARG…; see the command's documentation")
	}
	name := args[0]
	begin := time.Now()
	d, err := ops()[name](args[1:])
	result := map[string]any{"op": name, "ok": err == nil, "err": "", "errno": "", "detail": d,
		"ms": float64(time.Since(begin).Microseconds()) / 1000}
	if errors.Is(err, errUsage) || errors.Is(err, flag.ErrHelp) {
		return err
	}
	if err != nil {
		result["err"] = err.Error()
		if errno := syscall.Errno(0); errors.As(err, &errno) {
			result["errno"] = unix.ErrnoName(errno)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// parse parses flags and checks the number of arguments (at least n).
func parse(fs *flag.FlagSet, args []string, n int) ([]string, error) {
	fs.SetOutput(os.Stderr)
	if err := fs.Parse(args); err != nil {
		return nil, usage("%v", err)
	}
	if f := fs.Lookup("timeout"); f != nil && patient() {
		if given, err := time.ParseDuration(f.Value.String()); err == nil && given < time.Minute {
			_ = fs.Set("timeout", time.Minute.String())
		}
	}
	if fs.NArg() < n {
		return nil, usage("%s needs %d arguments", fs.Name(), n)
	}
	return fs.Args(), nil
}

// patient says whether what is tried has to work.
func patient() bool { return waits }

var waits bool // there is one operation at a time

func flags(name string) *flag.FlagSet { return flag.NewFlagSet(name, flag.ContinueOnError) }

func number(s string) (int, error) {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		return 0, usage("%q isn't a number", s)
	}
	return int(n), nil
}
