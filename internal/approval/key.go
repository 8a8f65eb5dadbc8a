package approval

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Key signs what goes out, and tells an answer from a forgery.
type Key []byte

// The bounds of a key in bytes, as the specification of Standard Webhooks has them.
const (
	minKey = 24
	maxKey = 64
)

// secretForm begins a secret in the form of Standard Webhooks; the rest is the key in base64.
const secretForm = "whsec_"

// ParseKey reads a secret: whsec_ and base64, or any 24 to 64 characters as they are. Its error has nothing of it.
func ParseKey(secret []byte) (Key, error) {
	key := Key(secret)
	if coded, is := strings.CutPrefix(string(secret), secretForm); is {
		var err error
		if key, err = base64.StdEncoding.Strict().DecodeString(coded); err != nil {
			return nil, errors.New("what follows " + secretForm + " is not base64")
		}
	}
	if len(key) < minKey || len(key) > maxKey {
		return nil, fmt.Errorf("a key has %d to %d bytes, and this one %d: openssl rand -base64 32", minKey, maxKey, len(key))
	}
	return key, nil
}

// Line is a request as one signed line, for where its approvers read what others write as well: a container's log.
func (k Key) Line(a Ask) string {
	said := fmt.Sprintf("ask|1|%s|%s|%d|%s|%s|%d|%d|%d", a.Container, a.Start, a.Request, a.Nonce, a.Target, a.Seconds, a.Made, a.Ends)
	return hex.EncodeToString(k.sum(said)) + "|" + said
}

func (k Key) sum(text string) []byte {
	mac := hmac.New(sha256.New, k)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// Headers sign a webhook as Standard Webhooks has it: over id, time and body. An id begins with msg_, so nothing that
// was signed here is ever an answer, which is signed from its first word on.
func (k Key) Headers(id string, at time.Time, body []byte) map[string]string {
	id, stamp := "msg_"+id, fmt.Sprint(at.Unix())
	sum := k.sum(id + "." + stamp + "." + string(body))
	return map[string]string{"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": "v1," + base64.StdEncoding.EncodeToString(sum)}
}
