// Package login reads the files in which agents keep the login of a subscription, and refreshes what they hold. It is
// pure: it makes requests and takes their answers, and another sends them.
package login

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// Login is what one file holds. It is immutable: an answer makes another.
type Login struct {
	vendor  *vendor
	file    object // whole, since a refresh changes a few fields of it
	access  string
	refresh string
	expires time.Time // of access; zero where nobody knows
}

// object is a JSON object whose values are kept as they are written.
type object = map[string]json.RawMessage

// vendor is how one provider writes its file and refreshes.
type vendor struct {
	name, host, path, client string
	section                  string // of the file, which has the tokens
	access, refresh          string // names in it
	expires                  func(section object, access string) time.Time
	ask                      func(section object) map[string]string // besides what all ask for
	store                    func(file, section object, a answer, now time.Time)
	final                    []string // errors after which no other try can succeed
}

// answer is what the token endpoints of both say (RFC 6749, 5.1). Each field may be left out.
type answer struct {
	Access, Refresh, ID, Scope string
	ExpiresIn, RefreshExpires  int64 // seconds
}

// read takes from an answer what is of the right type. A number may be written as a text. What else the answer says does
// not matter: its tokens are not to be lost for it.
func read(body []byte) (a answer, err error) {
	var o object
	if json.Unmarshal(body, &o) != nil || o == nil {
		return a, ErrUnread
	}
	for name, to := range map[string]*string{"id_token": &a.ID, "scope": &a.Scope} {
		*to = text(o, name)
	}
	for name, to := range map[string]*int64{"expires_in": &a.ExpiresIn, "refresh_token_expires_in": &a.RefreshExpires} {
		var n float64
		if json.Unmarshal(o[name], &n) != nil {
			n, _ = strconv.ParseFloat(strings.TrimSpace(text(o, name)), 64)
		}
		*to = int64(min(max(n, 0), 1<<40))
	}
	for name, to := range map[string]*string{"access_token": &a.Access, "refresh_token": &a.Refresh} {
		*to = text(o, name)
		if said := string(o[name]); !printable(*to) && said != "" && said != "null" {
			return a, ErrUnread
		}
	}
	if a.Access == "" && a.Refresh == "" {
		return a, ErrUnread
	}
	return a, nil
}

// Parse reads a file of Claude Code's (.credentials.json) or of Codex' (auth.json).
func Parse(data []byte) (*Login, error) {
	var file object
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, errors.New("the login is no JSON object") // the decoder's error may quote it
	}
	for _, v := range vendors {
		if section, ok := sub(file, v.section); ok {
			return v.login(file, section)
		}
	}
	return nil, errors.New("neither a login of Claude Code (.credentials.json) nor one of Codex (auth.json with tokens)")
}

func (v *vendor) login(file, section object) (*Login, error) {
	l := &Login{vendor: v, file: file, access: text(section, v.access), refresh: text(section, v.refresh)}
	if !printable(l.access) || !printable(l.refresh) {
		return nil, fmt.Errorf("the login of %s has no access token, or no refresh token", v.name)
	}
	l.expires = v.expires(section, l.access)
	return l, nil
}

// printable says whether s can be a token: it goes into a header.
func printable(s string) bool {
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return s != "" && len(s) <= maxToken
}

const maxToken = 16 << 10 // bytes

func sub(file object, name string) (section object, ok bool) {
	return section, json.Unmarshal(file[name], &section) == nil && section != nil
}

func text(o object, name string) (s string) {
	_ = json.Unmarshal(o[name], &s) // another type is as good as none
	return s
}

func set(o object, name string, v any) {
	o[name], _ = json.Marshal(v) // texts, numbers and lists of texts have a form
}

// Access is the credential that a request needs now.
func (l *Login) Access() string { return l.access }

// Account is what a request of Codex' says besides, in ChatGPT-Account-Id; "" with Claude Code.
func (l *Login) Account() string {
	section, _ := sub(l.file, l.vendor.section)
	return text(section, "account_id")
}

// Asked tells by which token Request asks, without telling the token. An answer is to that one alone.
func (l *Login) Asked() [sha256.Size]byte { return sha256.Sum256([]byte(l.refresh)) }

// Vendor is whose login it is, for people.
func (l *Login) Vendor() string { return l.vendor.name }

// ahead is how long before its end a token is refreshed: a request must not outlive it on its way.
const ahead = 5 * time.Minute

// Due says whether the token is to be refreshed before it is used.
func (l *Login) Due(now time.Time) bool {
	return !l.expires.IsZero() && now.Add(ahead).After(l.expires)
}

// Host is where a refresh is asked for, over HTTPS.
func (l *Login) Host() string { return l.vendor.host }

// Request is the body of a refresh, for POST at the path of Host. It is JSON.
func (l *Login) Request() (path string, body []byte) {
	section, _ := sub(l.file, l.vendor.section)
	ask := map[string]string{"grant_type": "refresh_token", "refresh_token": l.refresh, "client_id": l.vendor.client}
	for name, value := range l.vendor.ask(section) {
		ask[name] = value
	}
	body, _ = json.Marshal(ask) // of texts alone
	return l.vendor.path, body
}

// ErrOver is what no other try can mend: a person has to log in again.
var ErrOver = errors.New("the login is over")

// MaxAnswer bounds what of an answer is read.
const MaxAnswer = 128 << 10

// ErrUnread is about an answer that may have tokens in it, of a form that is not known. It is not to be thrown away: with
// some vendors the token that was asked with is void by now.
var ErrUnread = errors.New("the answer to a refresh can't be read")

// Answered says whether an answer of a status may have tokens in it.
func Answered(status int) bool { return status >= 200 && status < 300 }

// Answer takes the answer to Request. The login that it returns has to be kept before its token is used: with some
// vendors the token that was asked with is void from now on. An answer without an access token leaves the old one, which
// is then asked for again, by the new refresh token.
func (l *Login) Answer(status int, body []byte, now time.Time) (*Login, error) {
	if !Answered(status) {
		return nil, l.refused(status, body)
	}
	a, err := read(body)
	if err != nil {
		return nil, err
	}
	next := &Login{vendor: l.vendor, file: maps.Clone(l.file), access: cmp.Or(a.Access, l.access), refresh: cmp.Or(a.Refresh, l.refresh)}
	section, _ := sub(l.file, l.vendor.section)
	set(section, l.vendor.access, next.access)
	set(section, l.vendor.refresh, next.refresh)
	l.vendor.store(next.file, section, a, now)
	set(next.file, l.vendor.section, section)
	next.expires = l.vendor.expires(section, next.access)
	return next, nil
}

// refused says why, in the words of the vendor's list of errors and no others.
func (l *Login) refused(status int, body []byte) error {
	var plain struct {
		Error string `json:"error"`
		Code  string `json:"code"`
	}
	var nested struct {
		Error struct {
			Code string `json:"code"`
			Type string `json:"type"`
		} `json:"error"`
	}
	_, _ = json.Unmarshal(body, &plain), json.Unmarshal(body, &nested) // one of them fails
	for _, code := range l.vendor.final {
		for _, said := range []string{plain.Error, plain.Code, nested.Error.Code, nested.Error.Type} {
			if said == code {
				return fmt.Errorf("%w: %s answered %s", ErrOver, l.vendor.host, code)
			}
		}
	}
	return fmt.Errorf("%s answered a refresh with status %d", l.vendor.host, status)
}

// File is what is to be kept, in the vendor's shape.
func (l *Login) File() []byte {
	data, _ := json.MarshalIndent(l.file, "", "  ") // of values that were read from JSON
	return append(data, '\n')
}
