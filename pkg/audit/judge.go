package audit

import (
	"fmt"
	"slices"
	"strings"
)

// verifier follows the chain of a log. What it keeps is bounded, whatever is in the log.
type verifier struct {
	out     Verification
	last    Head   // the line that the next one has to follow
	also    string // another line with that number, of which one was added
	chained bool   // a line with a hash was there: from then on each has one
	away    Head   // the last of a run of lines that stand in the wrong place
	noted   note   // where the log began and ended when its reading began; zero: nobody knows
	known   []Head
	met     []string // the hash of the line of each known head, "" if there was none
}

// line takes the next line of the log.
func (v *verifier) line(raw []byte, at spot) {
	v.out.Lines++
	l, ok := linkOf(raw)
	if !ok || l.Prev == "" && v.chained {
		v.found(Finding{Kind: Added, Why: "a line without a number and a hash"}, at)
		return
	}
	if l.Prev == "" {
		v.out.Unhashed++
	}
	follows := l.Prev == "" || l.Prev == v.last.Hash || v.also != "" && l.Prev == v.also
	v.chained = v.chained || l.Prev != ""
	hash := hashOf(raw)
	v.meet(l.Seq, hash)
	if l.Kind == Guard && l.Verdict == Fault && strings.HasPrefix(l.Reason, Tampered) {
		v.found(Finding{Kind: Noticed, From: l.Seq, To: l.Seq, Why: l.Reason}, at)
	}
	switch expected := v.last.Seq + 1; {
	case v.out.First == 0:
		if v.out.First = l.Seq; v.noted.First > 0 && l.Seq > v.noted.First {
			v.lack(v.noted.First, l.Seq-1, at, "the log begins with a later line")
		}
	case l.Seq < expected:
		v.behind(l, hash, at)
		return
	case l.Seq > expected && follows && strings.HasPrefix(l.Reason, Unwritten) && l.Suppressed == l.Seq-expected:
		v.out.Lost += l.Suppressed
	case l.Seq > expected && follows && l.Prev != "":
		v.found(Finding{Kind: Altered, From: l.Seq, To: l.Seq, Why: fmt.Sprintf("by its hash it is line %d", expected)}, at)
		l.Seq = expected
	case l.Seq > expected:
		v.lack(expected, l.Seq-1, at, fmt.Sprintf("line %d follows line %d", l.Seq, v.last.Seq))
	case !follows:
		v.found(Finding{Kind: Altered, From: v.last.Seq, To: v.last.Seq, Why: fmt.Sprintf("line %d follows another line %d", l.Seq, v.last.Seq)}, at)
	}
	v.last, v.also, v.away = Head{l.Seq, hash}, "", Head{}
}

// behind takes a line that stands behind later ones: it was moved, or there are two of its number.
func (v *verifier) behind(l link, hash string, at spot) {
	if l.Seq == v.last.Seq {
		v.also = hash
	}
	run := v.away.Seq > 0 && l.Seq == v.away.Seq+1
	if run && l.Prev != v.away.Hash {
		v.found(Finding{Kind: Altered, From: v.away.Seq, To: v.away.Seq, Why: fmt.Sprintf("line %d follows another line %d", l.Seq, v.away.Seq)}, at)
	}
	v.away = Head{l.Seq, hash}
	kind, why := Added, fmt.Sprintf("there is a line %d already", l.Seq)
	if v.regain(l.Seq) || l.Seq < v.out.First {
		kind, why = Reordered, fmt.Sprintf("it stands behind line %d", v.last.Seq)
	}
	if n := len(v.out.Findings); run && n > 0 {
		if f := &v.out.Findings[n-1]; f.Kind == kind && f.To == l.Seq-1 {
			f.To = l.Seq
			return
		}
	}
	v.found(Finding{Kind: kind, From: l.Seq, To: l.Seq, Why: why}, at)
}

// regain takes a line out of those that are missing.
func (v *verifier) regain(seq uint64) bool {
	i := slices.IndexFunc(v.out.Findings, func(f Finding) bool { return f.Kind == Missing && f.From <= seq && seq <= f.To })
	if i < 0 {
		return false
	}
	f := v.out.Findings[i]
	before, after := f, f
	before.To, after.From = seq-1, seq+1
	if len(v.out.Findings) >= maxFindings {
		return true
	}
	var rest []Finding
	for _, part := range []Finding{before, after} {
		if part.From <= part.To {
			rest = append(rest, part)
		}
	}
	v.out.Findings = slices.Replace(v.out.Findings, i, i+1, rest...)
	return true
}

// meet holds a line against the heads that are known.
func (v *verifier) meet(seq uint64, hash string) {
	for i, h := range v.known {
		if h.Seq == seq && (v.met[i] == "" || !h.is(v.met[i])) { // of two lines one may be it
			v.met[i] = hash
		}
	}
}

// judge says which of the heads that are known are not there.
func (v *verifier) judge() {
	end := v.last.Seq
	for i, h := range v.known {
		switch {
		case v.met[i] != "" && h.is(v.met[i]):
		case v.met[i] != "":
			v.find(Finding{Kind: Altered, From: h.Seq, To: h.Seq, Why: fmt.Sprintf("its hash was %s, and is %s", h.Short(), Head{Hash: v.met[i]}.Short())})
		case h.Seq > v.last.Seq:
			end = max(end, h.Seq)
		case h.Seq < v.out.First:
			v.out.Unjudged = append(v.out.Unjudged, h)
		default:
			v.find(Finding{Kind: Missing, From: h.Seq, To: h.Seq, Why: "its hash was " + h.Short()})
		}
	}
	if end > v.last.Seq {
		v.lack(max(v.last.Seq+1, v.noted.First), end, spot{}, "the log ends before")
	}
}

// forget takes out what is missing because its file went, as the oldest does, while the log was read.
func (v *verifier) forget(first uint64) {
	v.out.Findings = slices.DeleteFunc(v.out.Findings, func(f Finding) bool { return f.Kind == Missing && f.To > 0 && f.To < first })
	for i := range v.out.Findings {
		if f := &v.out.Findings[i]; f.Kind == Missing && f.From > 0 && f.From < first {
			f.From = first
		}
	}
}

func (v *verifier) lack(from, to uint64, at spot, why string) {
	v.found(Finding{Kind: Missing, From: from, To: to, Why: why}, at)
}

func (v *verifier) found(f Finding, at spot) {
	f.File, f.Line = at.file, at.line
	v.find(f)
}

func (v *verifier) find(f Finding) {
	if len(v.out.Findings) >= maxFindings {
		v.out.More++
		return
	}
	v.out.Findings = append(v.out.Findings, f)
}
