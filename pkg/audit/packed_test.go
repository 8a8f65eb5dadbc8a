package audit

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// sentEvents are those of the golden events that a sender may tell of, as they arrive.
func sentEvents(by Sender) (out []Event) {
	for _, e := range goldenEvents() {
		if slices.Contains(by.may, e.Kind) {
			e.Seq, e.Time, e.Prev = 0, time.Time{}, "" // the keeper's to give
			out = append(out, e)
		}
	}
	return out
}

func TestPackRoundTrip(t *testing.T) {
	long := strings.Repeat("x", maxText)
	for _, e := range sentEvents(TheBroker) {
		if got := Untrusted(TheBroker, Pack(e)); !reflect.DeepEqual(got, e) {
			t.Errorf("got %+v, want %+v", got, e)
		}
		if got := Untrusted(TheGuard, Pack(e)); got.Kind != Guard {
			t.Errorf("the guard could say %+v", got)
		}
	}
	for _, e := range sentEvents(TheGuard) {
		if got := Untrusted(TheBroker, Pack(e)); got.Kind != Guard || got.Verdict != Fault {
			t.Errorf("the broker could say %+v", got)
		}
	}
	for _, e := range append(sentEvents(TheGuard),
		Event{Kind: DNS, Verdict: Deny, Asker: BySelfTest, Name: long, IP: long[:maxWord], Proto: long[:maxWord], Rule: long[:maxRule], Reason: long, Comm: long[:maxWord],
			Route: long[:maxWord], Method: long[:maxWord], Path: long[:maxPath], Model: long[:maxModel], Key: long[:maxShort]},
		Event{Kind: Drop, Verdict: Deny, Asker: ByOutside}) {
		raw := Pack(e)
		if len(raw) > MaxPacked {
			t.Errorf("%d bytes, more than %d", len(raw), MaxPacked)
		}
		if got := Untrusted(TheGuard, raw); !reflect.DeepEqual(got, e) {
			t.Errorf("got %+v, want %+v", got, e)
		}
	}
}

// TestUntrusted: what no guard sends is a fault of the guard's, and nothing of it
// gets into the line.
func TestUntrusted(t *testing.T) {
	good := Pack(Event{Kind: DNS, Verdict: Deny, Name: "evil.example", Reason: "not allowed"})
	with := func(change func(*packedHead, *[]byte)) []byte {
		var h packedHead
		if _, err := binary.Decode(good, binary.BigEndian, &h); err != nil {
			t.Fatal(err)
		}
		text := bytes.Clone(good[packedHeadSize:])
		change(&h, &text)
		raw, err := binary.Append(nil, binary.BigEndian, h)
		if err != nil {
			t.Fatal(err)
		}
		return append(raw, text...)
	}
	if e := Untrusted(TheGuard, with(func(*packedHead, *[]byte) {})); e.Kind != DNS || e.Name != "evil.example" {
		t.Fatalf("%+v", e)
	}
	for name, raw := range map[string][]byte{
		"nothing":        nil,
		"a torn head":    good[:packedHeadSize-1],
		"a torn text":    good[:len(good)-1],
		"a byte more":    append(bytes.Clone(good), 0),
		"JSON":           Encode(Event{Kind: DNS, Verdict: Deny}),
		"policy":         Pack(Event{Kind: Policy, Verdict: Info}),
		"guard":          Pack(Event{Kind: Guard, Verdict: Info}),
		"the broker's":   Pack(Event{Kind: Broker, Verdict: Allow, Path: "/evil"}),
		"grant":          Pack(Event{Kind: Grant, Verdict: Allow}),
		"bad verdict":    Pack(Event{Kind: DNS, Verdict: "maybe"}),
		"no verdict":     Pack(Event{Kind: DNS}),
		"enforced allow": Pack(Event{Kind: DNS, Verdict: Allow, Enforce: Allow}),
		"bad asker":      Pack(Event{Kind: DNS, Verdict: Allow, Asker: "root"}),
		"kind 5":         with(func(h *packedHead, _ *[]byte) { h.Kind = 5 }),
		"verdict 4":      with(func(h *packedHead, _ *[]byte) { h.Verdict = 4 }),
		"two uids":       with(func(h *packedHead, _ *[]byte) { h.HasUID = 2 }),
		"a longer text":  with(func(h *packedHead, _ *[]byte) { h.Lengths[0]++ }),
		"lengths beyond": with(func(h *packedHead, _ *[]byte) { h.Lengths[packedTexts-1] = 0xffff }),
		"a long word":    with(func(h *packedHead, b *[]byte) { h.Lengths[1] = maxWord + 1; *b = bytes.Repeat([]byte("x"), 200) }),
		"not UTF-8":      with(func(_ *packedHead, b *[]byte) { (*b)[0] = 0xff }),
	} {
		e := Untrusted(TheGuard, raw)
		if e.Kind != Guard || e.Verdict != Fault || e.Reason == "" || e.Name != "" || strings.Contains(e.Reason, "evil") {
			t.Errorf("%s: %+v", name, e)
		}
		checkLine(t, Encode(e))
	}
}

func FuzzUntrusted(f *testing.F) {
	for _, e := range goldenEvents() {
		f.Add(Pack(e))
	}
	f.Add([]byte(nil))
	f.Add(make([]byte, packedHeadSize))
	f.Add(bytes.Repeat([]byte{0xff}, packedHeadSize))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, by := range []Sender{TheGuard, TheBroker} {
			e := Untrusted(by, raw)
			its := slices.Contains(by.may, e.Kind)
			if !its && (e.Kind != Guard || e.Verdict != Fault) {
				t.Errorf("%s recorded %+v", by.name, e)
			}
			checkLine(t, Encode(e))
			if its {
				if again := Untrusted(by, Pack(e)); !reflect.DeepEqual(again, e) {
					t.Errorf("got %+v, then %+v", e, again)
				}
			}
		}
	})
}
