package firewall

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The library can't say that a zone is for one direction, so rules that set one are
// sent without it. They go over its socket all the same: the table is that socket's.

// setsZone says whether r is such a rule.
func setsZone(r rule) bool {
	_, ok := r.verdict.(zone)
	return ok
}

// zoneChains returns the chains of p that set zones: those that live has as they are
// wanted, and the others. A flow whose packets are in turns in a zone and in none would
// be two, so rules that are there are not replaced.
func zoneChains(live *liveTable, p Plan) (same map[string]bool, other []chain, err error) {
	want, err := wantedChains(p)
	if err != nil {
		return nil, nil, err
	}
	same = map[string]bool{}
	for _, c := range p.chains {
		if !slices.ContainsFunc(c.rules, setsZone) {
			continue
		}
		if l := live.chains[c.name]; l != nil && slices.Equal(l.rules, want[c.name].rules) {
			same[c.name] = true
		} else {
			other = append(other, c)
		}
	}
	return same, other, nil
}

// addZone adds the rules of c, which is a chain of t that has none.
func (n *nft) addZone(t *nftables.Table, c chain) error {
	for _, r := range c.rules {
		data, err := zoneRule(t, c.name, r)
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
func zoneRule(t *nftables.Table, chain string, r rule) ([]byte, error) {
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
	return slices.Concat(attr(unix.NFTA_RULE_TABLE, t.Name), attr(unix.NFTA_RULE_CHAIN, chain), rest), err
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
func marksOtherwise(ct attrs) bool {
	dir := ct[unix.NFTA_CT_DIRECTION]
	return ct.uint32(unix.NFTA_CT_KEY) == uint32(expr.CtKeyZONE) && (len(dir) != 1 || dir[0] != expr.CtDirOriginal)
}

// transact has the kernel do m, alone in a batch (nfnetlink.h).
func (n *nft) transact(m netlink.Message) error {
	batch := func(typ netlink.HeaderType) netlink.Message {
		return netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request}, Data: []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}}
	}
	if err := n.sock.SetDeadline(time.Now().Add(netlinkTimeout)); err != nil {
		return err
	}
	defer n.sock.SetDeadline(time.Time{})
	if _, err := n.sock.SendMessages([]netlink.Message{batch(unix.NFNL_MSG_BATCH_BEGIN), m, batch(unix.NFNL_MSG_BATCH_END)}); err != nil {
		return err
	}
	_, err := n.sock.Receive()
	if err != nil {
		discard(n.sock)
	}
	return err
}

// probeZone says whether rules can put flows into zones.
func (n *nft) probeZone() bool {
	t := &nftables.Table{Name: tableName + "-probe", Family: nftables.TableFamilyINet, Flags: n.flags}
	n.conn.AddTable(t)
	n.conn.AddChain(&nftables.Chain{Name: "probe", Table: t})
	if err := n.conn.Flush(); err != nil {
		n.log.Debug("flows can't be put into zones", "error", err)
		return false
	}
	err := n.addZone(t, chain{name: "probe", rules: []rule{to(zone{guardZone}, matchUID{uid: 1})}})
	n.conn.DelTable(t)
	if e := n.conn.Flush(); err == nil {
		err = e
	}
	if err != nil {
		n.log.Debug("flows can't be put into zones", "error", err)
	}
	return err == nil
}
