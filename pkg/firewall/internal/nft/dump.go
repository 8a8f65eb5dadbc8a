package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
)

// nftaTableOwner is NFTA_TABLE_OWNER of nf_tables.h.
const nftaTableOwner = 7

// nftReader reads tables. It has a socket of its own, since reading needs no
// right to change them.
type nftReader struct{ conn *netlink.Conn }

func openReader() (*nftReader, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	return &nftReader{c}, nil
}

// liveTable is our table as the kernel has it.
type liveTable struct {
	flags, owner uint32
	chains       map[string]*liveChain
	sets         map[string]liveSet
}

type liveChain struct {
	hook  string // type, hook, priority and policy; "" for a chain without
	rules []string
}

// liveSet is the definition of a set, without what it holds.
type liveSet string

// table returns the table of that name, without what its sets hold, or nil if
// there is none.
func (r *nftReader) table(name string) (*liveTable, error) {
	msgs, err := r.get(unix.NFT_MSG_GETTABLE, 0, nfnetlink.Attr(unix.NFTA_TABLE_NAME, name))
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read table: %w", err)
	}
	t := &liveTable{chains: map[string]*liveChain{}, sets: map[string]liveSet{}}
	for _, m := range msgs {
		t.flags, t.owner = m.Uint32(unix.NFTA_TABLE_FLAGS), m.Uint32(nftaTableOwner)
	}
	if err := r.chains(name, t); err != nil {
		return nil, fmt.Errorf("read chains: %w", err)
	}
	if err := r.rules(name, t); err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	if err := r.sets(name, t); err != nil {
		return nil, fmt.Errorf("read sets: %w", err)
	}
	return t, nil
}

func (r *nftReader) chains(table string, t *liveTable) error {
	msgs, err := r.get(unix.NFT_MSG_GETCHAIN, netlink.Dump, nil)
	if err != nil {
		return err
	}
	for _, m := range msgs {
		if m.String(unix.NFTA_CHAIN_TABLE) != table {
			continue
		}
		c := &liveChain{}
		if h, ok := m[unix.NFTA_CHAIN_HOOK]; ok {
			hook, err := nfnetlink.ParseAttrs(h)
			if err != nil {
				return err
			}
			c.hook = hookText(m.String(unix.NFTA_CHAIN_TYPE), hook.Uint32(unix.NFTA_HOOK_HOOKNUM),
				int32(hook.Uint32(unix.NFTA_HOOK_PRIORITY)), m.Uint32(unix.NFTA_CHAIN_POLICY))
		}
		t.chains[m.String(unix.NFTA_CHAIN_NAME)] = c
	}
	return nil
}

func hookText(typ string, hook uint32, priority int32, policy uint32) string {
	return fmt.Sprintf("type %s hook %d priority %d policy %d", typ, hook, priority, policy)
}

func (r *nftReader) rules(table string, t *liveTable) error {
	msgs, err := r.get(unix.NFT_MSG_GETRULE, netlink.Dump, nfnetlink.Attr(unix.NFTA_RULE_TABLE, table))
	if err != nil {
		return err
	}
	for _, m := range msgs {
		c := t.chains[m.String(unix.NFTA_RULE_CHAIN)]
		if c == nil || m.String(unix.NFTA_RULE_TABLE) != table {
			continue
		}
		c.rules = append(c.rules, canonical(m[unix.NFTA_RULE_EXPRESSIONS]))
	}
	return nil
}

// canonical returns a rule's expressions in the form that canonicalOf gives
// to ours. A rule with one that we never use stays raw, so equals none.
func canonical(raw []byte) string {
	list, err := netlink.NewAttributeDecoder(raw)
	if err != nil {
		return string(raw)
	}
	var es []expr.Any
	for list.Next() {
		m, err := nfnetlink.ParseAttrs(list.Bytes())
		if err != nil {
			return string(raw)
		}
		if m.String(unix.NFTA_EXPR_NAME) == "ct" {
			if ct, err := nfnetlink.ParseAttrs(m[unix.NFTA_EXPR_DATA]); err != nil || marksOtherwise(ct) {
				return string(raw)
			}
		}
		e := knownExpr(m)
		if e == nil || expr.Unmarshal(byte(nftables.TableFamilyINet), m[unix.NFTA_EXPR_DATA], e) != nil {
			return string(raw)
		}
		es = append(es, e)
	}
	s, err := canonicalOf(es)
	if err != nil || list.Err() != nil {
		return string(raw)
	}
	return s
}

// knownExpr returns an empty expression of m's kind, if it is one of those
// that compile makes.
func knownExpr(m nfnetlink.Attrs) expr.Any {
	switch m.String(unix.NFTA_EXPR_NAME) {
	case "meta":
		return &expr.Meta{}
	case "cmp":
		return &expr.Cmp{}
	case "payload":
		return &expr.Payload{}
	case "ct":
		return &expr.Ct{}
	case "bitwise":
		return &expr.Bitwise{}
	case "exthdr":
		return &expr.Exthdr{}
	case "fib":
		return &expr.Fib{}
	case "lookup":
		return &expr.Lookup{}
	case "dynset":
		return &expr.Dynset{}
	case "limit":
		return &expr.Limit{}
	case "log":
		return &expr.Log{}
	case "counter":
		return &expr.Counter{}
	case "reject":
		return &expr.Reject{}
	case "redir":
		return &expr.Redir{}
	case "immediate":
		// A verdict, if it goes to the register of verdicts.
		data, err := nfnetlink.ParseAttrs(m[unix.NFTA_EXPR_DATA])
		if err == nil && data.Uint32(unix.NFTA_IMMEDIATE_DREG) == unix.NFT_REG_VERDICT {
			return &expr.Verdict{}
		}
		return &expr.Immediate{}
	}
	return nil
}

// canonicalOf serialises expressions, leaving out what the kernel counts and
// the name that it gives to sets within a transaction.
func canonicalOf(es []expr.Any) (string, error) {
	var out []byte
	for _, e := range es {
		switch x := e.(type) {
		case *expr.Counter:
			e = &expr.Counter{}
		case *expr.Lookup:
			x.SetID = 0
		case *expr.Dynset:
			x.SetID = 0
		}
		b, err := expr.Marshal(byte(nftables.TableFamilyINet), e)
		if err != nil {
			return "", err
		}
		out = binary.BigEndian.AppendUint32(out, uint32(len(b)))
		out = append(out, b...)
	}
	return string(out), nil
}

func (r *nftReader) sets(table string, t *liveTable) error {
	msgs, err := r.get(unix.NFT_MSG_GETSET, netlink.Dump, nfnetlink.Attr(unix.NFTA_SET_TABLE, table))
	if err != nil {
		return err
	}
	for _, m := range msgs {
		if m.String(unix.NFTA_SET_TABLE) != table {
			continue
		}
		desc, err := nfnetlink.ParseAttrs(m[unix.NFTA_SET_DESC])
		if err != nil {
			return err
		}
		t.sets[m.String(unix.NFTA_SET_NAME)] = setText(m.Uint32(unix.NFTA_SET_FLAGS), m.Uint32(unix.NFTA_SET_KEY_TYPE),
			m.Uint32(unix.NFTA_SET_KEY_LEN), m.Uint64(unix.NFTA_SET_TIMEOUT), desc.Uint32(unix.NFTA_SET_DESC_SIZE))
	}
	return nil
}

func setText(flags, keyType, keyLen uint32, timeoutMs uint64, size uint32) liveSet {
	return liveSet(fmt.Sprintf("flags %#x key %#x of %d bytes timeout %d ms size %d", flags, keyType, keyLen, timeoutMs, size))
}

// elements returns what a set holds, keys and ends of ranges together.
func (r *nftReader) elements(table, name string) (map[string]nftables.SetElement, error) {
	out := make(map[string]nftables.SetElement)
	err := r.eachElement(table, name, func(e nftables.SetElement) error {
		e.Key, e.KeyEnd = slices.Clone(e.Key), slices.Clone(e.KeyEnd)
		out[elementID(e)] = e
		return nil
	})
	return out, err
}

// eachElement calls do with each of what a set holds. There may be more than a
// hundred thousand, so nothing is made of one but what do makes of it, and what it
// gets is only good until it returns.
func (r *nftReader) eachElement(table, name string, do func(nftables.SetElement) error) error {
	err := nfnetlink.Stream(nftMessage(unix.NFT_MSG_GETSETELEM, netlink.Dump,
		append(nfnetlink.Attr(unix.NFTA_SET_ELEM_LIST_TABLE, table), nfnetlink.Attr(unix.NFTA_SET_ELEM_LIST_SET, name)...)), func(m nfnetlink.Attrs) error {
		return nfnetlink.EachAttr(m[unix.NFTA_SET_ELEM_LIST_ELEMENTS], func(_ uint16, raw []byte) error {
			e, err := parseElement(raw)
			if err != nil {
				return err
			}
			return do(e)
		})
	})
	if err != nil {
		return fmt.Errorf("read set %s: %w", name, err)
	}
	return nil
}

func parseElement(raw []byte) (e nftables.SetElement, err error) {
	millis := func(b []byte) time.Duration {
		if len(b) != 8 {
			return 0
		}
		return time.Duration(binary.BigEndian.Uint64(b)) * time.Millisecond
	}
	err = nfnetlink.EachAttr(raw, func(typ uint16, b []byte) error {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			e.Key = nfnetlink.Within(b, unix.NFTA_DATA_VALUE)
		case nftables.NFTA_SET_ELEM_KEY_END:
			e.KeyEnd = nfnetlink.Within(b, unix.NFTA_DATA_VALUE)
		case unix.NFTA_SET_ELEM_TIMEOUT:
			e.Timeout = millis(b)
		case unix.NFTA_SET_ELEM_EXPIRATION:
			e.Expires = millis(b)
		}
		return nil
	})
	return e, err
}

// elementID tells elements of one set apart.
func elementID(e nftables.SetElement) string { return string(e.Key) + string(e.KeyEnd) }

// get sends one request about tables of family inet and returns the answers.
func (r *nftReader) get(typ int, flags netlink.HeaderFlags, data []byte) ([]nfnetlink.Attrs, error) {
	return nfnetlink.Exchange(r.conn, nftMessage(typ, flags, data))
}

func nftMessage(typ int, flags netlink.HeaderFlags, data []byte) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | typ), Flags: netlink.Request | flags},
		Data:   append([]byte{byte(nftables.TableFamilyINet), unix.NFNETLINK_V0, 0, 0}, data...),
	}
}
