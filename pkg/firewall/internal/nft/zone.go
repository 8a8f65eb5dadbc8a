package nft

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// The library can't say that a zone is for one direction, so rules that set one are
// sent without it, and with them the others of their chain. They go over its socket all the same: the table is that
// socket's.

// setZone is the verdict of such rules.
const setZone = "ct original zone set"

// zoneChains returns the chains of p, which makes want, that set zones: those that live has as they are wanted, and the others. A flow
// whose packets are in turns in a zone and in none would be two, so rules that are there are not replaced.
func zoneChains(live, want *liveTable, p plan.Plan) (same map[string]bool, other []plan.Chain) {
	same = map[string]bool{}
	for _, c := range p.Chains {
		if !setsZones(c) {
			continue
		}
		if live.has(c.Name) && slices.Equal(live.rules[c.Name], want.rules[c.Name]) {
			same[c.Name] = true
		} else {
			other = append(other, c)
		}
	}
	return same, other
}

func setsZones(c plan.Chain) bool {
	return slices.ContainsFunc(c.Rules, func(r plan.Rule) bool { return r.Verdict.Do == setZone })
}

// addZone adds the rules of c, a chain of p and t that has none, in one transaction.
func (n *Backend) addZone(t *nftables.Table, c plan.Chain, p plan.Plan) error {
	var rules []nfnetlink.Request
	for _, r := range c.Rules {
		rule, err := zoneRule(t, c.Name, r, p)
		if err != nil {
			return err
		}
		rules = append(rules, rule)
	}
	return n.transact(rules...)
}

func zoneRule(t *nftables.Table, chain string, r plan.Rule, p plan.Plan) (nfnetlink.Request, error) {
	es, err := compile(r, p)
	var list []byte
	for _, e := range es {
		data, merr := expr.Marshal(byte(t.Family), e)
		if ct, ok := e.(*expr.Ct); ok && ct.Key == expr.CtKeyZONE { // "ct original zone set" as nf_tables.h has it
			var set []byte
			set = nfnetlink.Append(set, unix.NFTA_CT_KEY, binary.BigEndian.AppendUint32(nil, uint32(ct.Key))...)
			set = nfnetlink.Append(set, unix.NFTA_CT_SREG, binary.BigEndian.AppendUint32(nil, ct.Register)...)
			set = nfnetlink.Append(set, unix.NFTA_CT_DIRECTION, expr.CtDirOriginal)
			data = nfnetlink.Append(nfnetlink.Text(unix.NFTA_EXPR_NAME, "ct"), unix.NFTA_EXPR_DATA|unix.NLA_F_NESTED, set...)
		}
		err = errors.Join(err, merr)
		list = nfnetlink.Append(list, unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, data...)
	}
	q := get(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, append(nfnetlink.Text(unix.NFTA_RULE_TABLE, t.Name), nfnetlink.Text(unix.NFTA_RULE_CHAIN, chain)...))
	q.Attrs = nfnetlink.Append(q.Attrs, unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, list...)
	return q, err
}

// marksOtherwise says whether a rule sets a zone in another way than zoneRule.
func marksOtherwise(ct nfnetlink.Attrs) bool {
	dir := ct[unix.NFTA_CT_DIRECTION]
	return ct.Uint32(unix.NFTA_CT_KEY) == uint32(expr.CtKeyZONE) && (len(dir) != 1 || dir[0] != expr.CtDirOriginal)
}

// transact has the kernel do all of qs or none, in a batch (nfnetlink.h). Only the last is to be acknowledged: of the
// others, errors come all the same, and before.
func (n *Backend) transact(qs ...nfnetlink.Request) error {
	last := len(qs) + 1
	msgs := make([]netlink.Message, last+1)
	for i, q := range qs {
		m := &msgs[i+1]
		if err := m.UnmarshalBinary(q.Encode()); err != nil {
			return err
		}
		if i+1 < len(qs) {
			m.Header.Flags &^= netlink.Acknowledge
		}
	}
	for i, typ := range map[int]netlink.HeaderType{0: unix.NFNL_MSG_BATCH_BEGIN, last: unix.NFNL_MSG_BATCH_END} {
		msgs[i].Header = netlink.Header{Type: typ, Flags: netlink.Request}
		msgs[i].Data = []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}
	}
	if err := n.sock.SetDeadline(time.Now().Add(nfnetlink.Timeout)); err != nil {
		return err
	}
	defer n.sock.SetDeadline(time.Time{})
	if _, err := n.sock.SendMessages(msgs); err != nil {
		return err
	}
	_, err := n.sock.Receive()
	if err != nil {
		discard(n.sock)
	}
	return err
}

// discard takes what an exchange that failed has left on the socket, else each answer would come to the question after
// its own. A process that was frozen for longer than the deadline finds its answer late. All of it is there: the kernel
// answers while it is asked, and goes on with a listing while it is read (af_netlink.c, netlink_dump).
func discard(c *netlink.Conn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return // it is closed
	}
	buf := make([]byte, 1<<16)
	_ = raw.Control(func(fd uintptr) {
		for err := error(nil); err == nil || err == unix.ENOBUFS; {
			_, _, err = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
		}
	})
}

// probeZone says whether the kernel puts flows into zones, by one transaction that changes nothing.
func (n *Backend) probeZone() bool {
	t := n.probeTable()
	table, chain := nfnetlink.Text(unix.NFTA_TABLE_NAME, t.Name), nfnetlink.Text(unix.NFTA_CHAIN_TABLE, t.Name)
	r := plan.Rule{Matches: []plan.Match{{Field: "meta skuid", Value: uint32(1)}}, Verdict: plan.Verdict{Do: setZone, N: 1}}
	rule, err := zoneRule(t, "probe", r, plan.Plan{})
	if err == nil {
		err = n.transact(
			get(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, table),
			get(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, append(chain, nfnetlink.Text(unix.NFTA_CHAIN_NAME, "probe")...)),
			rule,
			get(unix.NFT_MSG_DELTABLE, 0, table),
		)
	}
	if err != nil {
		n.log.Debug("flows can't be put into zones", "error", err)
	}
	return err == nil
}
