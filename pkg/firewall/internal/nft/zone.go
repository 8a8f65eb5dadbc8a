package nft

import (
	"encoding/binary"
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
// sent without it. They go over its socket all the same: the table is that socket's.

// setsZone says whether r is such a rule.
func setsZone(r plan.Rule) bool {
	_, ok := r.Verdict.(plan.Zone)
	return ok
}

// zoneChains returns the chains of p that set zones: those that live has as they are
// wanted, and the others. A flow whose packets are in turns in a zone and in none would
// be two, so rules that are there are not replaced.
func zoneChains(live *liveTable, p plan.Plan) (same map[string]bool, other []plan.Chain, err error) {
	want, err := wantedChains(p)
	if err != nil {
		return nil, nil, err
	}
	same = map[string]bool{}
	for _, c := range p.Chains {
		if !slices.ContainsFunc(c.Rules, setsZone) {
			continue
		}
		if l := live.chains[c.Name]; l != nil && slices.Equal(l.rules, want[c.Name].rules) {
			same[c.Name] = true
		} else {
			other = append(other, c)
		}
	}
	return same, other, nil
}

// addZone adds the rules of c, which is a chain of t that has none.
func (n *Backend) addZone(t *nftables.Table, c plan.Chain) error {
	for _, r := range c.Rules {
		data, err := zoneRule(t, c.Name, r)
		if err != nil {
			return err
		}
		if err := n.transact(netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWRULE),
				Flags: netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Append},
			Data: append([]byte{byte(t.Family), unix.NFNETLINK_V0, 0, 0}, data...),
		}); err != nil {
			return err
		}
	}
	return nil
}

// zoneRule returns the attributes of r.
func zoneRule(t *nftables.Table, chain string, r plan.Rule) ([]byte, error) {
	es, err := compile(r, nil)
	if err != nil {
		return nil, err
	}
	var list []netlink.Attribute
	for _, e := range es {
		data, err := expr.Marshal(byte(t.Family), e)
		if ct, ok := e.(*expr.Ct); ok && ct.Key == expr.CtKeyZONE {
			data, err = marshalZone(ct)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, netlink.Attribute{Type: unix.NFTA_LIST_ELEM | unix.NLA_F_NESTED, Data: data})
	}
	exprs, err := netlink.MarshalAttributes(list)
	if err != nil {
		return nil, err
	}
	rest, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.NFTA_RULE_EXPRESSIONS | unix.NLA_F_NESTED, Data: exprs}})
	return slices.Concat(nfnetlink.Attr(unix.NFTA_RULE_TABLE, t.Name), nfnetlink.Attr(unix.NFTA_RULE_CHAIN, chain), rest), err
}

// marshalZone returns "ct original zone set" as nf_tables.h has it.
func marshalZone(ct *expr.Ct) ([]byte, error) {
	data, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_CT_KEY, Data: binary.BigEndian.AppendUint32(nil, uint32(ct.Key))},
		{Type: unix.NFTA_CT_SREG, Data: binary.BigEndian.AppendUint32(nil, ct.Register)},
		{Type: unix.NFTA_CT_DIRECTION, Data: []byte{expr.CtDirOriginal}},
	})
	if err != nil {
		return nil, err
	}
	return netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_EXPR_NAME, Data: []byte("ct\x00")}, {Type: unix.NFTA_EXPR_DATA | unix.NLA_F_NESTED, Data: data},
	})
}

// marksOtherwise says whether a rule sets a zone in another way than marshalZone.
func marksOtherwise(ct nfnetlink.Attrs) bool {
	dir := ct[unix.NFTA_CT_DIRECTION]
	return ct.Uint32(unix.NFTA_CT_KEY) == uint32(expr.CtKeyZONE) && (len(dir) != 1 || dir[0] != expr.CtDirOriginal)
}

// transact has the kernel do m, alone in a batch (nfnetlink.h).
func (n *Backend) transact(m netlink.Message) error {
	batch := func(typ netlink.HeaderType) netlink.Message {
		return netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request}, Data: []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}}
	}
	if err := n.sock.SetDeadline(time.Now().Add(nfnetlink.Timeout)); err != nil {
		return err
	}
	defer n.sock.SetDeadline(time.Time{})
	if _, err := n.sock.SendMessages([]netlink.Message{batch(unix.NFNL_MSG_BATCH_BEGIN), m, batch(unix.NFNL_MSG_BATCH_END)}); err != nil {
		return err
	}
	_, err := n.sock.Receive()
	if err != nil {
		nfnetlink.Discard(n.sock)
	}
	return err
}

// probeZone says whether rules can put flows into zones.
func (n *Backend) probeZone() bool {
	t := &nftables.Table{Name: plan.TableName + "-probe", Family: nftables.TableFamilyINet, Flags: n.flags}
	n.conn.AddTable(t)
	n.conn.AddChain(&nftables.Chain{Name: "probe", Table: t})
	if err := n.conn.Flush(); err != nil {
		n.log.Debug("flows can't be put into zones", "error", err)
		return false
	}
	err := n.addZone(t, plan.Chain{Name: "probe", Rules: []plan.Rule{plan.To(plan.Zone{Id: plan.GuardZone}, plan.MatchUID{UID: 1})}})
	n.conn.DelTable(t)
	if e := n.conn.Flush(); err == nil {
		err = e
	}
	if err != nil {
		n.log.Debug("flows can't be put into zones", "error", err)
	}
	return err == nil
}
