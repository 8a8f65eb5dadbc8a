package approval

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"
)

var (
	key  = Key("0123456789abcdef0123456789abcdef")
	noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
)

// signed is an answer by whoever has the key, written down anew from docs/approvals.md.
func signed(key Key, said string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(said))
	return hex.EncodeToString(mac.Sum(nil)) + "|" + said
}

// right are the fields of an answer that is taken.
func right(ask Ask) []string {
	return []string{"answer", "1", ask.Container, ask.Start, fmt.Sprint(ask.Request), ask.Nonce, ask.Target, "allow", fmt.Sprint(ask.Seconds),
		fmt.Sprint(noon.Unix()), fmt.Sprint(noon.Add(time.Minute).Unix()), "ann@example.com", "one build"}
}

// The places of the fields.
const (
	atWord = iota
	atVersion
	atContainer
	atStart
	atRequest
	atNonce
	atTarget
	atVerdict
	atSeconds
	atMade
	atEnds
	atWho
	atReason
)

func newAsk(d *Desk, number uint32, target string) Ask {
	return d.Ask(number, target, 10*time.Minute, noon.Add(-time.Minute), noon.Add(time.Hour))
}

// accept is what a keeper does with a line, but for the book.
func accept(d *Desk, waits *Ask, line string, now time.Time) error {
	a, err := key.Read(line)
	if err != nil {
		return err
	}
	return a.Meets(d, waits, now)
}

// TestAnswer: an answer to what was asked is taken, as long as it says.
func TestAnswer(t *testing.T) {
	d := NewDesk("agent-0")
	ask := newAsk(d, 3, "api.example.com")
	with := func(at int, value string) []string {
		f := right(ask)
		f[at] = value
		return f
	}
	deny := with(atVerdict, "deny")
	deny[atSeconds] = "0"
	for what, f := range map[string][]string{
		"as asked": right(ask), "shorter": with(atSeconds, "1"), "without a reason": with(atReason, ""), "denied": deny,
		"until the end of the request": with(atEnds, fmt.Sprint(ask.Ends)), "by a clock that is ahead": with(atMade, fmt.Sprint(noon.Unix()+59)),
	} {
		line := signed(key, strings.Join(f, "|"))
		a, err := key.Read(line)
		if err == nil {
			err = a.Meets(d, &ask, noon)
		}
		if err != nil || a.Request() != 3 || a.Target != ask.Target || a.Who != "ann@example.com" || len(line) > MaxLine {
			t.Errorf("%s: %v, %+v", what, err, a)
		}
	}
	if a, _ := key.Read(signed(key, strings.Join(deny, "|"))); a.Allow {
		t.Error("a denial allows")
	}
}

// forgeries are the answers that must not be taken, by what is wrong with them.
func forgeries(d *Desk, ask Ask) map[string]string {
	out := map[string]string{}
	sign := func(f []string) string { return signed(key, strings.Join(f, "|")) }
	good := sign(right(ask))
	set := func(what string, at int, value string) {
		f := right(ask)
		f[at] = value
		out[what] = sign(f)
	}
	// Forged and altered.
	out["nothing"] = ""
	out["a signature alone"] = good[:64]
	out["a bar behind nothing"] = good[:65]
	out["no signature"] = good[65:]
	out["a signature of zeros"] = strings.Repeat("0", 64) + good[64:]
	out["another key"] = signed(Key("another key, of the same length."), good[65:])
	out["an empty key"] = signed(nil, good[65:])
	out["a key of zeros"] = signed(make(Key, 32), good[65:])
	out["a signature in capitals"] = strings.ToUpper(good[:64]) + good[64:]
	out["a signature cut short"] = good[:62] + good[64:]
	out["a signature in base64"] = base64.StdEncoding.EncodeToString([]byte(good[:48])) + good[64:]
	out["a hash without a key"] = fmt.Sprintf("%x|%s", sha256.Sum256([]byte(good[65:])), good[65:])
	out["one bit of the signature"] = string(good[0]^1) + good[1:]
	out["one more character"] = good + "s"
	out["a newline behind"] = good + "\n"
	out["a carriage return behind"] = good + "\r"
	out["a blank before"] = " " + good
	out["a byte order mark before"] = "\ufeff" + good
	out["the target altered"] = strings.Replace(good, ask.Target, "evil.example.com", 1)
	out["the seconds altered"] = strings.Replace(good, "|600|", "|599|", 1)
	out["two signatures"] = good[:65] + good
	out["the request itself, signed as a webhook"] = key.Headers("x", noon, []byte(good[65:]))["webhook-signature"] + good[64:]
	// Signed, and not of the form: a bug of an approver's, or one who has the key and tries.
	out["another word"] = sign(append([]string{"ask"}, right(ask)[1:]...))
	set("another version", atVersion, "2")
	set("a version in another spelling", atVersion, "01")
	out["a field less"] = sign(right(ask)[:12])
	out["a field more"] = sign(append(right(ask), "more"))
	out["each field twice"] = sign(append(right(ask), right(ask)...))
	out["the target twice"] = sign(append(append(right(ask)[:7:7], ask.Target), right(ask)[7:]...))
	out["fields in another order"] = sign(append([]string{"answer", "1", ask.Start, ask.Container}, right(ask)[4:]...))
	out["no fields"] = signed(key, "")
	out["bars alone"] = signed(key, strings.Repeat("|", 12))
	out["huge"] = sign(append(right(ask)[:12:12], strings.Repeat("x", 1<<20)))
	out["a byte too long"] = signed(key, strings.Join(right(ask), "|")+strings.Repeat("x", MaxLine-len(good)+1))
	set("not UTF-8", atReason, "\xff\xfe")
	set("a letter beyond ASCII", atWho, "änn")
	set("a NUL", atReason, "a\x00b")
	set("an escape sequence", atReason, "\x1b[2J")
	set("a second line", atReason, "a\nb")
	set("a run of blanks", atReason, "a    b")
	set("nobody", atWho, "")
	set("a long name", atWho, strings.Repeat("a", 65))
	set("a long reason", atReason, strings.Repeat("a", 201))
	set("another verdict", atVerdict, "ALLOW")
	set("no verdict", atVerdict, "")
	set("a denial for a time", atVerdict, "deny")
	for _, number := range []string{"", "+600", "-1", "0600", "6e2", "0x1", " 600", "600 ", "600.0", "99999999999999999999", "٦"} {
		set("seconds of "+number, atSeconds, number)
	}
	// Widened.
	set("no seconds", atSeconds, "0")
	set("a second more", atSeconds, "601")
	set("for ever", atSeconds, "9223372036854775807")
	set("a name above", atTarget, "*.example.com")
	set("another name", atTarget, "evil.example.com")
	set("another port", atTarget, ask.Target+":22")
	set("a word more", atTarget, ask.Target+" private")
	set("another case", atTarget, strings.ToUpper(ask.Target))
	set("a dot behind", atTarget, ask.Target+".")
	set("a preset", atTarget, "@github")
	// Another's.
	other := newAsk(NewDesk("agent-0"), 3, ask.Target)
	set("another container", atContainer, "agent-1")
	set("another container in another case", atContainer, "Agent-0")
	set("another start", atStart, other.Start)
	set("the nonce of another start", atNonce, other.Nonce)
	out["all of another start"] = sign(right(other))
	elsewhere := newAsk(NewDesk("agent-1"), 3, ask.Target)
	out["all of another container"] = sign(right(elsewhere))
	next := newAsk(d, ask.Request+1, ask.Target)
	out["another request"] = sign(right(next))
	set("the number of another request", atRequest, fmt.Sprint(next.Request))
	set("the nonce of another request", atNonce, next.Nonce)
	set("no nonce", atNonce, "")
	set("a nonce of zeros", atNonce, strings.Repeat("0", 32))
	set("a request in another spelling", atRequest, "03")
	set("a request that wraps", atRequest, fmt.Sprint(uint64(ask.Request)+1<<32))
	// Late, and from the future.
	set("a second late", atEnds, fmt.Sprint(noon.Unix()-1))
	set("made tomorrow", atMade, fmt.Sprint(noon.Add(24*time.Hour).Unix()))
	set("a clock too far ahead", atMade, fmt.Sprint(noon.Unix()+61))
	set("made before it was asked for", atMade, fmt.Sprint(ask.Made-61))
	both := func(what string, made, ends int64) {
		f := right(ask)
		f[atMade], f[atEnds] = fmt.Sprint(made), fmt.Sprint(ends)
		out[what] = sign(f)
	}
	both("all of it in the future", noon.Unix()+61, noon.Unix()+120)
	both("ending in the future, before it is made", noon.Unix()+59, noon.Unix()+30)
	none := right(ask)
	none[atVerdict], none[atSeconds] = "no", "0"
	out["another verdict, for no time"] = sign(none)
	set("made in 1970", atMade, "0")
	set("ending before it was made", atEnds, fmt.Sprint(noon.Unix()-1))
	set("outlasting the request", atEnds, fmt.Sprint(ask.Ends+1))
	set("without an end", atEnds, "9223372036854775807")
	return out
}

// TestForgeries: no answer is taken but the one that was asked for.
func TestForgeries(t *testing.T) {
	d := NewDesk("agent-0")
	ask := newAsk(d, 3, "api.example.com")
	if err := accept(d, &ask, signed(key, strings.Join(right(ask), "|")), noon); err != nil {
		t.Fatalf("the right one: %v", err)
	}
	all := forgeries(d, ask)
	if len(all) < 40 {
		t.Errorf("only %d kinds", len(all))
	}
	for what, line := range all {
		err := accept(d, &ask, line, noon)
		if err == nil {
			t.Errorf("%s was taken: %q", what, line)
		} else if text := err.Error(); len(text) > 120 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%s: the reason has what the answer says: %q", what, text)
		}
	}
	if _, err := key.Read(all["huge"]); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a huge one is hashed: %v", err)
	}
	if _, err := Key(nil).Read(all["an empty key"]); err == nil {
		t.Error("without a key, anybody signs")
	}
	negative := right(ask)
	negative[atRequest] = "-1"
	if a, err := key.Read(signed(key, strings.Join(negative, "|"))); err == nil {
		t.Errorf("request -1 is %d", a.Request())
	}
	// What comes when nothing waits, later, and to a keeper that was started again.
	good := signed(key, strings.Join(right(ask), "|"))
	if accept(d, nil, good, noon) == nil {
		t.Error("an answer to nothing was taken")
	}
	if accept(d, &ask, good, noon.Add(61*time.Second)) == nil {
		t.Error("a late answer was taken")
	}
	if again := NewDesk("agent-0"); true {
		waits := newAsk(again, 3, ask.Target)
		if accept(again, &waits, good, noon) == nil {
			t.Error("an answer to an earlier start was taken")
		}
	}
}

// TestForgeriesDiffer: each refusal of the table is for its own sake, so that one check that is left out shows.
func TestForgeriesDiffer(t *testing.T) {
	d := NewDesk("agent-0")
	ask := newAsk(d, 3, "api.example.com")
	why := map[string]int{}
	for _, line := range forgeries(d, ask) {
		if err := accept(d, &ask, line, noon); err != nil {
			why[err.Error()]++
		}
	}
	if len(why) < 20 {
		t.Errorf("only %d reasons: %v", len(why), why)
	}
}

// TestWebhookSignature: it is that of Standard Webhooks, by the example of its specification.
func TestWebhookSignature(t *testing.T) {
	k, err := ParseKey([]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
	if err != nil {
		t.Fatal(err)
	}
	body := `{"test": 2432232314}`
	h := k.Headers("p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(body))
	if h["webhook-id"] != "msg_p5jXN8AQM9LWM0D4loKWxJek" || h["webhook-timestamp"] != "1614265330" || h["webhook-signature"] != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("%v", h)
	}
}

// TestParseKey: a key is long enough to be none that is guessed, and no error has anything of it.
func TestParseKey(t *testing.T) {
	for secret, want := range map[string]int{
		"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32)): 32,
		"a secret of 24 letters..":                                     24, strings.Repeat("x", 64): 64,
		strings.Repeat("x", 65): 0, "short": 0, "": 0, "whsec_": 0, "whsec_%%%%": 0, "whsec_YWJj": 0,
		"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65)): 0,
	} {
		k, err := ParseKey([]byte(secret))
		if len(k) != want || (err == nil) != (want > 0) || err != nil && len(secret) > 8 && strings.Contains(err.Error(), secret[6:]) {
			t.Errorf("%q: %d bytes, %v", secret, len(k), err)
		}
	}
}

// TestDesk: what is drawn for a request is nobody else's, and a host name stays in its field.
func TestDesk(t *testing.T) {
	seen := map[string]bool{}
	for range 20 {
		d := NewDesk("agent-0")
		for n := range uint32(50) {
			a := newAsk(d, n, "a.example")
			if again := newAsk(d, n, "a.example"); again != a || len(a.Nonce) != 32 || len(a.Start) != 16 || strings.HasPrefix(a.Nonce, a.Start) || seen[a.Nonce] {
				t.Fatalf("%+v, then %+v", a, again)
			}
			seen[a.Nonce] = true
		}
	}
	for host, want := range map[string]string{"": "-", "a|b c\nd\xff": "a-b-c-d-", strings.Repeat("h", 99): strings.Repeat("h", 64)} {
		if got := NewDesk(host).container; got != want {
			t.Errorf("%q is %q", host, got)
		}
	}
}

// FuzzRead: whatever comes, signed or not, ends in an answer whose fields are plain, or in a refusal that repeats
// nothing of it. Nothing that is not signed is ever an answer.
func FuzzRead(f *testing.F) {
	d := NewDesk("agent-0")
	ask := newAsk(d, 3, "api.example.com")
	f.Add(strings.Join(right(ask), "|"))
	for _, line := range forgeries(d, ask) {
		if len(line) <= 2*MaxLine {
			f.Add(line)
			if len(line) > 65 {
				f.Add(line[65:])
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := key.Read(text); err == nil && text != signed(key, text[65:]) {
			t.Fatalf("not signed, and taken: %q", text)
		}
		a, err := key.Read(signed(key, text))
		if err != nil {
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%q", err)
			}
			return
		}
		for _, field := range []string{a.Target, a.Who, a.Reason, a.container, a.start, a.nonce} {
			if strings.ContainsFunc(field, func(r rune) bool { return r < ' ' || r > '~' || r == '|' }) {
				t.Errorf("%q", field)
			}
		}
		// One answer has one spelling.
		verdict := "deny"
		if a.Allow {
			verdict = "allow"
		}
		again := fmt.Sprintf("answer|1|%s|%s|%d|%s|%s|%s|%d|%d|%d|%s|%s", a.container, a.start, a.request, a.nonce, a.Target, verdict, a.Seconds, a.made, a.ends, a.Who, a.Reason)
		if again != text {
			t.Errorf("%q is also %q", text, again)
		}
	})
}
