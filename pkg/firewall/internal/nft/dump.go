package nft

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

const nftaTableOwner = 7

type liveTable struct {
	flags, owner uint32
	hooks        map[string]string // of each chain: type, hook, priority and policy; "" for one without
	rules        map[string][]string
	sets         map[string]string // definitions, without what they hold
}

// reader reads what the kernel holds, which needs no right to change it.
type reader struct{ nfnetlink.Conn }

// table returns our table, without what its sets hold, or nil if there is none.
func (r *reader) table() (*liveTable, error) {
	t := &liveTable{hooks: map[string]string{}, rules: map[string][]string{}, sets: map[string]string{}}
	err := r.Stream(get(unix.NFT_MSG_GETTABLE, 0, nfnetlink.Text(unix.NFTA_TABLE_NAME, plan.TableName)), func(m nfnetlink.Attrs) error {
		t.flags, t.owner = m.Uint32(unix.NFTA_TABLE_FLAGS), m.Uint32(nftaTableOwner)
		return nil
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read table: %w", err)
	}
	for _, list := range []struct {
		what        string
		typ, ofName uint16
		attrs       []byte
		read        func(nfnetlink.Attrs) error
	}{
		{"chains", unix.NFT_MSG_GETCHAIN, unix.NFTA_CHAIN_TABLE, nil, t.readChain},
		{"rules", unix.NFT_MSG_GETRULE, unix.NFTA_RULE_TABLE, nfnetlink.Text(unix.NFTA_RULE_TABLE, plan.TableName), t.readRule},
		{"sets", unix.NFT_MSG_GETSET, unix.NFTA_SET_TABLE, nfnetlink.Text(unix.NFTA_SET_TABLE, plan.TableName), t.readSet},
	} {
		if err := r.Stream(get(list.typ, unix.NLM_F_DUMP, list.attrs), func(m nfnetlink.Attrs) error {
			if m.String(list.ofName) != plan.TableName {
				return nil
			}
			return list.read(m)
		}); err != nil {
			return nil, fmt.Errorf("read %s: %w", list.what, err)
		}
	}
	return t, nil
}

func (t *liveTable) readChain(m nfnetlink.Attrs) error {
	name := m.String(unix.NFTA_CHAIN_NAME)
	t.hooks[name], t.rules[name] = "", nil
	if h, ok := m[unix.NFTA_CHAIN_HOOK]; ok {
		hook, err := nfnetlink.ParseAttrs(h)
		if err != nil {
			return err
		}
		t.hooks[name] = hookText(m.String(unix.NFTA_CHAIN_TYPE), hook.Uint32(unix.NFTA_HOOK_HOOKNUM),
			int32(hook.Uint32(unix.NFTA_HOOK_PRIORITY)), m.Uint32(unix.NFTA_CHAIN_POLICY))
	}
	return nil
}

func hookText(typ string, hook uint32, priority int32, policy uint32) string {
	return fmt.Sprintf("type %s hook %d priority %d policy %d", typ, hook, priority, policy)
}

func (t *liveTable) readRule(m nfnetlink.Attrs) error {
	if name := m.String(unix.NFTA_RULE_CHAIN); t.has(name) {
		t.rules[name] = append(t.rules[name], canonical(m[unix.NFTA_RULE_EXPRESSIONS]))
	}
	return nil
}

func (t *liveTable) has(chain string) bool { _, ok := t.hooks[chain]; return ok }

func (t *liveTable) readSet(m nfnetlink.Attrs) error {
	desc, err := nfnetlink.ParseAttrs(m[unix.NFTA_SET_DESC])
	t.sets[m.String(unix.NFTA_SET_NAME)] = setText(m.Uint32(unix.NFTA_SET_FLAGS), m.Uint32(unix.NFTA_SET_KEY_TYPE),
		m.Uint32(unix.NFTA_SET_KEY_LEN), m.Uint64(unix.NFTA_SET_TIMEOUT), desc.Uint32(unix.NFTA_SET_DESC_SIZE))
	return err
}

// canonical returns a rule's expressions in the form that canonicalOf gives
// to ours. A rule with one that we never use stays raw, so equals none.
func canonical(raw []byte) string {
	var es []expr.Any
	err := nfnetlink.EachAttr(raw, func(_ uint16, element []byte) error {
		m, err := nfnetlink.ParseAttrs(element)
		data, derr := nfnetlink.ParseAttrs(m[unix.NFTA_EXPR_DATA])
		kind := m.String(unix.NFTA_EXPR_NAME)
		foreign := kind == "verdict" || kind == "ct" && marksOtherwise(data)
		if kind == "immediate" && data.Uint32(unix.NFTA_IMMEDIATE_DREG) == unix.NFT_REG_VERDICT {
			kind = "verdict"
		}
		make, ok := knownExprs[kind]
		if err := errors.Join(err, derr); err != nil || foreign || !ok {
			return errors.Join(err, errors.New("none of ours"))
		}
		es = append(es, make())
		return expr.Unmarshal(byte(nftables.TableFamilyINet), m[unix.NFTA_EXPR_DATA], es[len(es)-1])
	})
	s, cerr := canonicalOf(es)
	if err != nil || cerr != nil {
		return string(raw)
	}
	return s
}

// knownExprs make an empty expression of each kind that compile makes.
var knownExprs = map[string]func() expr.Any{
	"meta": empty[expr.Meta], "cmp": empty[expr.Cmp], "payload": empty[expr.Payload], "ct": empty[expr.Ct], "bitwise": empty[expr.Bitwise],
	"exthdr": empty[expr.Exthdr], "fib": empty[expr.Fib], "lookup": empty[expr.Lookup], "dynset": empty[expr.Dynset], "limit": empty[expr.Limit],
	"log": empty[expr.Log], "counter": empty[expr.Counter], "reject": empty[expr.Reject], "redir": empty[expr.Redir],
	"nat": empty[expr.NAT], "masq": empty[expr.Masq],
	"immediate": empty[expr.Immediate], "verdict": empty[expr.Verdict],
}

func empty[T any, P interface {
	*T
	expr.Any
}]() expr.Any {
	return P(new(T))
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

func setText(flags, keyType, keyLen uint32, timeoutMs uint64, size uint32) string {
	return fmt.Sprintf("flags %#x key %#x of %d bytes timeout %d ms size %d", flags, keyType, keyLen, timeoutMs, size)
}

// elements calls do with each of what a set holds. There may be more than a hundred thousand, so nothing is made of one
// but what do makes of it, and what it gets is only good until it returns.
func (r *reader) elements(set string, do func(nftables.SetElement) error) error {
	request := get(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP,
		append(nfnetlink.Text(unix.NFTA_SET_ELEM_LIST_TABLE, plan.TableName), nfnetlink.Text(unix.NFTA_SET_ELEM_LIST_SET, set)...))
	err := r.Stream(request, func(m nfnetlink.Attrs) error {
		return nfnetlink.EachAttr(m[unix.NFTA_SET_ELEM_LIST_ELEMENTS], func(_ uint16, raw []byte) error {
			e, err := parseElement(raw)
			if err != nil {
				return err
			}
			return do(e)
		})
	})
	if err != nil {
		return fmt.Errorf("read set %s: %w", set, err)
	}
	return nil
}

// compare returns what of a static set's elements is missing, and what it holds besides.
func (r *reader) compare(s plan.Set) (missing, extra []nftables.SetElement, err error) {
	want := make(map[string]nftables.SetElement, len(s.Boxes))
	for _, e := range fixed(s) {
		want[elementID(e)] = e
	}
	err = r.elements(s.Name, func(e nftables.SetElement) error {
		id := elementID(e)
		if _, ok := want[id]; !ok {
			e.Key, e.KeyEnd = slices.Clone(e.Key), slices.Clone(e.KeyEnd)
			extra = append(extra, e)
		}
		delete(want, id)
		return nil
	})
	return slices.Collect(maps.Values(want)), extra, err
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

func elementID(e nftables.SetElement) string { return string(e.Key) + string(e.KeyEnd) }

// get asks about tables of family inet, or for a change of one.
func get(typ, flags uint16, attrs []byte) nfnetlink.Request {
	return nfnetlink.Request{Subsystem: unix.NFNL_SUBSYS_NFTABLES, Type: typ, Flags: flags, Family: byte(nftables.TableFamilyINet), Attrs: attrs}
}

// fixed are the elements of a static set.
func fixed(s plan.Set) (out []nftables.SetElement) {
	for _, b := range s.Boxes {
		out = append(out, rangeElement(b))
	}
	return out
}

func nftSet(t *nftables.Table, s plan.Set) *nftables.Set {
	out := &nftables.Set{Table: t, Name: s.Name, KeyType: nftables.TypeInetService, Interval: s.Static,
		Dynamic: s.Dynamic, HasTimeout: !s.Static || !s.Until.IsZero(), Timeout: s.Timeout, Size: s.Size}
	if s.Family != 0 {
		addr := map[plan.Family]nftables.SetDatatype{plan.IPv4: nftables.TypeIPAddr, plan.IPv6: nftables.TypeIP6Addr}[s.Family]
		out.KeyType, out.Concatenation = nftables.MustConcatSetType(addr, nftables.TypeInetProto, nftables.TypeInetService), true
	}
	return out
}

// key returns the fields of an element, each padded to four bytes.
func key(a netip.Addr, proto uint8, port uint16) []byte {
	b := append(a.AsSlice(), proto, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, port)
	return append(b, 0, 0)
}

func leaseOfKey(key []byte) (plan.Element, error) {
	n := max(len(key)-8, 0)
	a, ok := netip.AddrFromSlice(key[:n])
	if !ok {
		return plan.Element{}, fmt.Errorf("a lease has the key %x", key)
	}
	return plan.Element{Addr: a, Proto: key[n], Port: binary.BigEndian.Uint16(key[n+4:])}, nil
}

func rangeElement(b plan.Box) nftables.SetElement {
	return nftables.SetElement{Key: key(b.Prefix.Addr(), b.Proto, b.Port), KeyEnd: key(b.Last(), cmp.Or(b.Proto, 255), cmp.Or(b.Port, 65535))}
}

// leaseElement returns the element of a lease set for l. A TTL of 0 leaves the time out, as is right for deleting.
func leaseElement(l plan.Lease) nftables.SetElement {
	if l.TTL > 0 {
		l.TTL = max(l.TTL.Round(time.Millisecond), time.Second)
	}
	return nftables.SetElement{Key: key(l.Addr, l.Proto, l.Port), Timeout: l.TTL}
}
