// Package approval says what a person far away is asked, and judges what comes back: pure, and without a parser of
// anything that nobody has signed.
package approval

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"
)

// Ask is a request as it goes out: which one of which start of which container, and what would be granted at most. The
// names of its fields in JSON are public. Times are seconds since 1970.
type Ask struct {
	Container string `json:"container"` // its host name
	Start     string `json:"start"`     // drawn when agent-init started
	Request   uint32 `json:"request"`   // its number, used once in a start
	Nonce     string `json:"nonce"`     // known to nobody before the request is made
	Target    string `json:"target"`    // an entry of a policy
	Seconds   int64  `json:"seconds"`   // for how long at most
	Made      int64  `json:"made"`
	Ends      int64  `json:"ends"` // no answer counts behind it
}

// Desk makes the requests of one start of one container. Its nonces follow from what it has drawn, so there is nothing
// to keep for each.
type Desk struct {
	container, start string
	seed             [32]byte
}

// The lengths of what is drawn, in hexadecimal digits, and of a host name (gethostname(2)).
const (
	startDigits  = 16
	nonceDigits  = 32
	maxContainer = 64
)

// NewDesk draws what no other start has.
func NewDesk(container string) *Desk {
	d := &Desk{container: nameOf(container)}
	rand.Read(d.seed[:])
	d.start = d.derive("start", 0)[:startDigits]
	return d
}

// nameOf is a host name with nothing in it that would end a field.
func nameOf(host string) string {
	host = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || r == '|' {
			return '-'
		}
		return r
	}, host)
	if host == "" {
		return "-"
	}
	return host[:min(len(host), maxContainer)]
}

func (d *Desk) derive(what string, number uint32) string {
	mac := hmac.New(sha256.New, d.seed[:])
	mac.Write(binary.BigEndian.AppendUint32([]byte(what), number))
	return hex.EncodeToString(mac.Sum(nil))
}

// Ask is what goes out about a request.
func (d *Desk) Ask(number uint32, target string, life time.Duration, made, ends time.Time) Ask {
	return Ask{
		Container: d.container, Start: d.start, Request: number, Nonce: d.derive("nonce", number)[:nonceDigits],
		Target: target, Seconds: int64(life / time.Second), Made: made.Unix(), Ends: ends.Unix(),
	}
}

// Start is drawn anew for each.
func (d *Desk) Start() string { return d.start }
