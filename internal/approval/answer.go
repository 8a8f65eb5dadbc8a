package approval

import (
	"crypto/hmac"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MaxLine is how long an answer may be. The longest has less.
const MaxLine = 1 << 10

// MaxAnswers is how many answers are taken from one place at once.
const MaxAnswers = 64

// Answer is what somebody who has the key has decided. It is one line:
//
//	MAC|answer|1|CONTAINER|START|REQUEST|NONCE|TARGET|VERDICT|SECONDS|MADE|ENDS|WHO|REASON
//
// MAC is HMAC-SHA256 over all behind its bar, as 64 hexadecimal digits. Fields have no names and no escapes: what they
// mean is their place, and each has one spelling.
type Answer struct {
	container, start, nonce string
	request                 uint32

	Target  string
	Allow   bool
	Seconds int64 // 0 of one that does not allow

	made, ends int64

	Who    string
	Reason string
}

const (
	macDigits = 64
	fields    = 13
	maxWho    = 64
	maxReason = 200
)

// Read verifies a line, and only then looks what it says. So the process that calls it parses nothing that a stranger
// has written.
func (k Key) Read(line string) (a Answer, err error) {
	switch {
	case len(line) > MaxLine:
		return a, errors.New("it is too long for an answer")
	case len(line) <= macDigits || line[macDigits] != '|':
		return a, errors.New("it is no answer")
	}
	var mac [macDigits / 2]byte
	said := line[macDigits+1:]
	if _, err := hex.Decode(mac[:], []byte(line[:macDigits])); err != nil || hex.EncodeToString(mac[:]) != line[:macDigits] {
		return a, errors.New("it has no signature")
	}
	if len(k) < minKey || !hmac.Equal(mac[:], k.sum(said)) {
		return a, errors.New("the signature is not of this key: it was forged or altered, or the key is another")
	}
	return parse(said)
}

// parse reads the fields of an answer that is signed.
func parse(said string) (a Answer, err error) {
	if strings.ContainsFunc(said, func(r rune) bool { return r < ' ' || r > '~' }) {
		return a, errors.New("it has other characters than printable ASCII")
	}
	f := strings.Split(said, "|")
	if len(f) != fields || f[0] != "answer" || f[1] != "1" {
		return a, fmt.Errorf("it has not the form of an answer: answer|1| and %d more fields", fields-2)
	}
	var wrong error
	number := func(text string, bits int) int64 {
		n, err := strconv.ParseInt(text, 10, bits)
		if err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
			wrong = errors.New("it has a number that is none, or not in its one spelling")
		}
		return n
	}
	a = Answer{
		container: f[2], start: f[3], request: uint32(number(f[4], 33)), nonce: f[5], Target: f[6], Allow: f[7] == "allow",
		Seconds: number(f[8], 64), made: number(f[9], 64), ends: number(f[10], 64), Who: f[11], Reason: f[12],
	}
	switch {
	case wrong != nil:
		return a, wrong
	case f[7] != "allow" && f[7] != "deny":
		return a, errors.New("it says neither allow nor deny")
	case !a.Allow && a.Seconds != 0:
		return a, errors.New("it denies for a time, and a denial has none")
	case a.Who == "" || len(a.Who) > maxWho || !single(a.Who):
		return a, fmt.Errorf("it says nobody's name, of at most %d characters in single blanks", maxWho)
	case len(a.Reason) > maxReason || !single(a.Reason):
		return a, fmt.Errorf("the reason is longer than %d characters, or not in single blanks", maxReason)
	}
	return a, nil
}

// single says whether text is in single blanks: a run of them could make a row of its own on a screen.
func single(text string) bool { return strings.Join(strings.Fields(text), " ") == text }

// Request is the number of the request that it is about.
func (a Answer) Request() uint32 { return a.request }

// skew is how far two clocks may be apart.
const skew = int64(time.Minute / time.Second)

// errNotWaiting is one kind of answer to a request that is decided already.
var errNotWaiting = errors.New("no such request waits: it was decided or forgotten, or this answer was used")

// Meets says why an answer is none to ask, now; ask is nil if no request of that number waits.
func (a Answer) Meets(d *Desk, ask *Ask, now time.Time) error {
	at := now.Unix()
	switch {
	case a.container != d.container:
		return errors.New("it is for another container")
	case a.start != d.start:
		return errors.New("it is for another start of this container")
	case ask == nil || a.request != ask.Request:
		return errNotWaiting
	case a.nonce != ask.Nonce:
		return errors.New("it is for another request")
	case a.Target != ask.Target:
		return errors.New("it is about another target than was asked for")
	case a.Allow && (a.Seconds < 1 || a.Seconds > ask.Seconds):
		return fmt.Errorf("it allows for %d seconds, and %d at most were asked for", a.Seconds, ask.Seconds)
	case a.made > at+skew:
		return errors.New("it was made in the future")
	case a.made < ask.Made-skew:
		return errors.New("it was made before the request")
	case a.ends < a.made:
		return errors.New("it ends before it was made")
	case a.ends > ask.Ends:
		return errors.New("it outlasts the request")
	case at > a.ends:
		return errors.New("it came too late")
	}
	return nil
}
