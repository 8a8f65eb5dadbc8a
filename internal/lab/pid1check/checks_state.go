package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func stateChecks() []Check {
	return []Check{
		{Name: "parent", Text: "the command is the init's own child: no helper is between them", run: func(t *trial) {
			b := t.start(options{}, sh(`echo ready; while :; do sleep 1; done`)...)
			b.expect(b.out, "ready")
			if name, err := os.ReadFile("/proc/" + strconv.Itoa(b.command()) + "/comm"); err != nil || string(name) != "sh\n" {
				t.failf("the init's child is %q (%v)", name, err)
			}
		}},
		{Name: "own-group", Text: "the command leads a process group of its own", run: func(t *trial) {
			b := t.start(options{}, sh("echo ready; exec sleep 1000")...)
			b.expect(b.out, "ready")
			for _, p := range processes() {
				if p.ppid == b.init && p.pgrp != p.pid {
					t.failf("pid %d is in group %d", p.pid, p.pgrp)
				}
			}
		}},
		{Name: "clean-signals", Text: "no signal is blocked, ignored or caught in the command that was not so in the init", run: func(t *trial) {
			for name, mask := range signalState(t, options{}) {
				if mask != 0 {
					t.failf("%s: %x", name, mask)
				}
			}
		}},
		{Name: "nohup", Text: "a HUP that the init was started to ignore (nohup) stays ignored in the command", run: func(t *trial) {
			ignored(t, syscall.SIGHUP)
		}},
		{Name: "ignored-int", Text: "an ignored INT stays ignored (started in the background by a script)", run: func(t *trial) { ignored(t, syscall.SIGINT) }},
		{Name: "ignored-quit", Text: "any other ignored signal stays ignored, such as QUIT", run: func(t *trial) { ignored(t, syscall.SIGQUIT) },
			Differs: "the Go runtime handles all but HUP and INT before any code of ours runs. Engines start containers with nothing ignored"},
		{Name: "blocked-usr1", Text: "a signal that the init was started with blocked stays blocked in the command", run: func(t *trial) {
			blocked(t, syscall.SIGUSR1)
		}},
		{Name: "blocked-term", Text: "a blocked TERM stays blocked", run: func(t *trial) { blocked(t, syscall.SIGTERM) },
			Differs: "the Go runtime unblocks HUP, INT, QUIT, ABRT and TERM. Engines start containers with nothing blocked"},
	}
}

func inheritedChecks() []Check {
	return []Check{
		{Name: "arguments", Text: "arguments arrive as they are: empty ones, options, bytes that are not UTF-8", run: func(t *trial) {
			odd := "--grace=\xff\xfe"
			// The spec of a box is text, so the shell makes the bytes.
			b := t.start(options{wrap: sh(`exec "$0" "$@" "" -h -- "$(printf -- '--grace=\377\376')"`)}, sh(`for a; do printf '%s|' "$a"; done; echo`)...)
			if got, want := b.last(b.out, ""), "-h|--|"+odd+"|"; got != want { // the first of them is $0
				t.failf("%q, want %q", got, want)
			}
		}},
		{Name: "environment", Text: "environment variables arrive as they are, also of a megabyte in all", run: environment},
		{Name: "directory-kept", Text: "the working directory is kept", run: func(t *trial) {
			b := t.start(options{wrap: sh(`cd /usr/share; exec "$0" "$@"`)}, "/bin/pwd")
			if got := b.last(b.out, ""); got != "/usr/share" {
				t.failf("%q", got)
			}
		}},
		{Name: "directory-gone", Text: "the command starts in a working directory that was deleted", run: func(t *trial) {
			t.start(options{wrap: sh(`mkdir /run/scratch/d; cd /run/scratch/d; rmdir /run/scratch/d; exec "$0" "$@"`)}, sh("exit 5")...).wantExit(5)
		}},
		{Name: "directory-not-pinned", Text: "the init itself holds no directory: a volume can be unmounted", run: func(t *trial) {
			b := t.start(options{wrap: sh(`cd /usr/share; exec "$0" "$@"`)}, sh("echo ready; exec sleep 1000")...)
			b.expect(b.out, "ready")
			if dir, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(b.init), "cwd")); err != nil || dir != "/" {
				t.failf("it is in %q (%v)", dir, err)
			}
		}},
		{Name: "umask", Text: "the usual umask, 022, is kept", run: func(t *trial) { umask(t, "0022") }},
		{Name: "umask-other", Text: "any other umask is kept", run: func(t *trial) { umask(t, "0027") },
			Differs: "the agent always gets 022, whatever the engine has"},
		{Name: "limits", Text: "resource limits are kept; the soft limit of open files is not raised", run: func(t *trial) {
			b := t.start(options{wrap: sh(`ulimit -Sn 1000; ulimit -Hn 4096; ulimit -s 9000; exec "$0" "$@"`)}, sh("echo $(ulimit -Sn) $(ulimit -Hn) $(ulimit -s)")...)
			if got := b.last(b.out, ""); got != "1000 4096 9000" {
				t.failf("%q", got)
			}
		}},
		{Name: "core-limit", Text: "the limit of core dumps is kept", run: func(t *trial) {
			b := t.start(options{wrap: sh(`ulimit -c 100; exec "$0" "$@"`)}, sh("ulimit -c")...)
			if got := b.last(b.out, ""); got != "100" {
				t.failf("%q", got)
			}
		}, Differs: "the agent dumps no core, since its memory holds API keys"},
		{Name: "oom-score", Text: "the OOM score is the one that the engine gave", run: func(t *trial) {
			b := t.start(options{wrap: sh(`echo 321 >/proc/self/oom_score_adj; exec "$0" "$@"`)}, "cat", "/proc/self/oom_score_adj")
			if got := b.last(b.out, ""); got != "321" {
				t.failf("%q", got)
			}
		}, Differs: "the agent's score is 500 higher. Where memory is short, its processes are to go before the process that keeps the rules"},
		{Name: "no-descriptors", Text: "the command gets no file descriptor that was not given", run: func(t *trial) {
			b := t.start(options{}, sh("ls /proc/self/fd | tr '\n' ' '; echo")...)
			if got := b.last(b.out, ""); got != "0 1 2 3 " { // 3 is the directory that ls reads
				t.failf("%q", got)
			}
		}},
		{Name: "descriptors-passed", Text: "the command gets the file descriptors that were given (socket activation)", run: func(t *trial) {
			t.start(options{wrap: sh(`exec 7</etc/passwd; exec "$0" "$@"`)}, sh("test -e /proc/self/fd/7")...).wantExit(0)
		}, Differs: "the agent inherits descriptors 0, 1 and 2 and nothing else. Another open descriptor may be the host's"},
		{Name: "stdin", Text: "standard input is the command's alone: a megabyte arrives whole, then its end", run: stdin},
		{Name: "stdin-null", Text: "without -i, standard input ends at once", run: func(t *trial) { t.start(options{}, sh("! read -r _")...).wantExit(0) }},
		{Name: "stdio-closed", Text: "the command starts with closed standard descriptors", run: func(t *trial) {
			for _, closed := range []string{"<&-", ">&- 2>&-", "<&- >&- 2>&-"} {
				t.start(options{wrap: sh(`exec "$0" "$@" ` + closed)}, sh("exit 21")...).wantExit(21)
			}
		}},
		{Name: "stdout-by-name", Text: "an unprivileged command can open /dev/stdout", run: func(t *trial) {
			b := t.start(options{drop: true}, sh("echo by name >/dev/stdout")...)
			b.wantExit(0)
			if got := b.drain(b.out); !slices.Equal(got, []string{"by name"}) {
				t.failf("%q", got)
			}
		}},
	}
}

func environment(t *trial) {
	large := strings.Repeat("x", 100_000) // one string may have 131072 bytes
	env := []string{"EMPTY=", "LINES=a\nb", "EQUALS=a=b", "ODD=\xff\xfe", "UNICODE=é漢", "lower.case-dots=1"}
	for i := range 10 {
		env = append(env, "LARGE"+strconv.Itoa(i)+"="+large)
	}
	b := t.start(options{env: env}, sh("tr '\\n\\0' '\\001\\n' </proc/self/environ")...)
	b.wantExit(0)
	got := b.drain(b.out)
	for _, v := range env {
		if !slices.Contains(got, strings.ReplaceAll(v, "\n", "\x01")) {
			t.failf("%.20q is missing or changed", v)
		}
	}
}

func umask(t *trial, mask string) {
	b := t.start(options{wrap: sh(`umask ` + mask + `; exec "$0" "$@"`)}, sh("umask")...)
	if got := b.last(b.out, ""); got != mask {
		t.failf("%q", got)
	}
}

func stdin(t *trial) {
	data := bytes.Repeat([]byte("0123456789\r\n\x03\x1a\x00\xff"), 1<<16)
	sum := sha256.Sum256(data)
	b := t.start(options{stdin: bytes.NewReader(data)}, "sha256sum")
	if got := b.last(b.out, ""); !strings.HasPrefix(got, hex.EncodeToString(sum[:])) {
		t.failf("other bytes arrived: %s", got)
	}
	b.wantExit(0)
}

// signalState are the masks of the command.
func signalState(t *trial, o options) map[string]uint64 {
	b := t.start(o, "cat", "/proc/self/status")
	masks := map[string]uint64{}
	for _, line := range b.drain(b.out) {
		name, value, _ := strings.Cut(line, ":")
		if name == "SigBlk" || name == "SigIgn" || name == "SigCgt" {
			mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			t.must(err)
			masks[name] = mask &^ (3 << 31) // 32 and 33 are the C library's own
		}
	}
	if len(masks) != 3 {
		t.failf("no masks but %v", masks)
	}
	return masks
}

func ignored(t *trial, sig syscall.Signal) {
	state := signalState(t, options{wrap: []string{"/bin/sh", "-c", `trap '' ` + strconv.Itoa(int(sig)) + `; exec "$0" "$@"`}})
	if state["SigIgn"] != 1<<(sig-1) {
		t.failf("ignored: %x", state["SigIgn"])
	}
}

func blocked(t *trial, sig syscall.Signal) {
	if state := signalState(t, options{block: []syscall.Signal{sig}}); state["SigBlk"] != 1<<(sig-1) {
		t.failf("blocked: %x", state["SigBlk"])
	}
}
