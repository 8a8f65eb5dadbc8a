package drop

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// program is classic BPF in the making. Every jump is over what was written
// just before it was closed, so none can go astray.
type program []unix.SockFilter

// Conditions on the accumulator.
const (
	jumpEqual   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	jumpAtLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	jumpAnyBit  = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
)

// deny is the action that fails a call with errno.
func deny(errno syscall.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

func (p *program) add(code uint16, k uint32) { *p = append(*p, unix.SockFilter{Code: code, K: k}) }
func (p *program) load(offset uint32)        { p.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset) }
func (p *program) loadArg(n uint32)          { p.load(dataArgs + 8*n) }
func (p *program) and(mask uint32)           { p.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, mask) }
func (p *program) ret(action uint32)         { p.add(unix.BPF_RET|unix.BPF_K, action) }

// when returns action if the accumulator meets the condition.
func (p *program) when(condition uint16, k, action uint32) {
	*p = append(*p, unix.SockFilter{Code: condition, Jf: 1, K: k})
	p.ret(action)
}

// unless returns action if it does not.
func (p *program) unless(condition uint16, k, action uint32) {
	*p = append(*p, unix.SockFilter{Code: condition, Jt: 1, K: k})
	p.ret(action)
}

// refuse fails system calls, for an accumulator that is one's number.
func (p *program) refuse(calls []uint32, errno syscall.Errno) {
	for _, nr := range calls {
		p.when(jumpEqual, nr, deny(errno))
	}
}

// oneOf allows these values of the accumulator, and nothing else.
func (p *program) oneOf(allowed ...uint32) {
	for _, k := range allowed {
		p.when(jumpEqual, k, unix.SECCOMP_RET_ALLOW)
	}
	p.ret(deny(unix.EPERM))
}

// skipUnless adds what body writes, for an accumulator that equals k.
func (p *program) skipUnless(k uint32, body func(*program)) {
	at := len(*p)
	*p = append(*p, unix.SockFilter{Code: jumpEqual, K: k})
	body(p)
	(*p)[at].Jf = uint8(len(*p) - at - 1)
}

// call adds rules for the arguments of one system call. Where they do not decide, it is allowed.
func (p *program) call(nr uint32, rules func(*program)) {
	p.skipUnless(nr, func(p *program) {
		rules(p)
		p.ret(unix.SECCOMP_RET_ALLOW)
	})
}
