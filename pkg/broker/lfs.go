package broker

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/agent-init/agent-init/pkg/broker/registry"
	"github.com/agent-init/agent-init/pkg/broker/room"
	"github.com/agent-init/agent-init/pkg/route"
)

// Large files of git lie at addresses that a server tells in its answer to a batch
// (https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md), with headers that are secret: signatures, or the
// very credential by which it was asked. The agent gets a ticket in the place of each: the address, sealed by a key that
// this process draws and shows nobody. It is of use for that repository, method and host alone, and for a time.

const (
	maxBatch   = 8 << 20 // of an answer: some 5,000 objects
	maxParts   = 1 << 18 // of that, by commas: an object without anything takes 16 times its length
	ticketTime = time.Hour
	ticketName = "ticket"
)

// batch is an answer that tells where objects are. What it has besides goes no further.
type batch struct {
	Transfer string      `json:"transfer,omitempty"`
	Objects  []lfsObject `json:"objects"`
	HashAlgo string      `json:"hash_algo,omitempty"`
}

type lfsObject struct {
	OID           string               `json:"oid"`
	Size          int64                `json:"size"`
	Authenticated bool                 `json:"authenticated"`
	Actions       map[string]lfsAction `json:"actions,omitempty"`
	Error         *lfsError            `json:"error,omitempty"`
}

type lfsAction struct {
	Href      string            `json:"href"`
	Header    map[string]string `json:"header,omitempty"`
	ExpiresIn int               `json:"expires_in,omitempty"`
}

type lfsError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

var errParts = errors.New("too many parts")

// methodOf is how an action is done, by the transfer "basic".
var methodOf = map[string]string{"download": http.MethodGet, "upload": http.MethodPut, "verify": http.MethodPost}

// ticket is what is sealed.
type ticket struct {
	URI    string            `json:"u"`
	Header map[string]string `json:"h,omitempty"`
	Until  int64             `json:"e"`
}

// newSeal draws the key of a process's tickets.
func newSeal() cipher.AEAD {
	var key [32]byte
	rand.Read(key[:])
	block, _ := aes.NewCipher(key[:]) // whose length is right
	seal, _ := cipher.NewGCMWithRandomNonce(block)
	return seal
}

// batch passes on where objects are, with a ticket in the place of each address.
func (a *answer) batch(resp *http.Response) {
	defer resp.Body.Close()
	x := a.x
	ctx, cancel := context.WithTimeout(a.ctx, documentTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() { resp.Body.Close() })()
	read := &room.Buffer{Hold: x.hold, Ctx: ctx, Most: maxBatch}
	data, err := read.ReadAll(resp.Body)
	if x.hold.Gave() {
		x.refuse(badBody(room.ErrFull))
		return
	}
	if turned := x.proxy.bodies.turn(a.ctx, x.proxy.bodies.trees); turned != nil {
		x.refuse(badBody(turned))
		return
	}
	out, n := x.batch(data, err)
	x.proxy.bodies.trees.Release(1)
	if n == nil && x.hold.Take(a.ctx, int64(len(out))) != nil {
		n = badBody(room.ErrFull)
	}
	x.hold.Give(int64(cap(data)))
	if n != nil {
		x.refuse(n)
		return
	}
	a.hand(&registry.Answer{Status: resp.StatusCode, Type: "application/vnd.git-lfs+json", Body: [][]byte{out}})
}

// batch is what an answer says when it has tickets.
func (x *exchange) batch(data []byte, err error) ([]byte, *no) {
	var b batch
	if bytes.Count(data, []byte(",")) > maxParts {
		err = errParts
	}
	if err == nil {
		err = json.Unmarshal(data, &b)
	}
	host := x.goal.up.place.host
	switch {
	case err != nil:
		return nil, refusal("server", host+" answered with what is no batch of objects of LFS")
	case b.Transfer != "" && b.Transfer != "basic":
		return nil, refusal("server", host+" wants another transfer of LFS than basic")
	}
	for _, o := range b.Objects {
		for name, action := range o.Actions {
			there, n := x.issue(name, action)
			if n != nil {
				return nil, n
			}
			o.Actions[name] = there
		}
	}
	out, err := json.Marshal(b)
	if err != nil {
		return nil, refusal("server", host+" answered with what can't be passed on")
	}
	return out, nil
}

// issue makes the ticket for one action.
func (x *exchange) issue(name string, action lfsAction) (lfsAction, *no) {
	unclear := refusal("server", x.goal.up.place.host+" answered with an address of LFS that can't be asked")
	to, err := url.Parse(action.Href)
	method := methodOf[name]
	if err != nil || method == "" || to.User != nil || to.Fragment != "" {
		return action, unclear
	}
	at, err := placeOf(&url.URL{Scheme: to.Scheme, Host: strings.ToLower(to.Host)})
	if err != nil {
		return action, unclear
	}
	repo := strings.TrimSuffix(x.path, "/objects/batch")
	for i := range x.way.route.Endpoints {
		e := &x.way.route.Endpoints[i]
		path := repo + e.Path[strings.LastIndexByte(e.Path, '/'):]
		if e.Method != method || !ticketed(e) || x.way.to(e.To).up.place != at || !e.MatchPath(path) {
			continue
		}
		valid := ticketTime
		if action.ExpiresIn > 0 {
			valid = min(valid, time.Duration(min(action.ExpiresIn, int(ticketTime/time.Second)))*time.Second)
		}
		data, err := json.Marshal(ticket{to.RequestURI(), action.Header, time.Now().Add(valid).Unix()})
		if err != nil {
			return action, unclear
		}
		sealed := x.proxy.seal.Seal(nil, nil, data, x.bound(method, path, at))
		href := x.base + path + "?" + ticketName + "=" + base64.RawURLEncoding.EncodeToString(sealed)
		return lfsAction{Href: href, ExpiresIn: int(valid / time.Second)}, nil
	}
	return action, refusal("server", fmt.Sprintf("the objects of LFS are on %s, where route %s leads nobody", to.Host, x.way.route.Name))
}

// bound is what a ticket is for. What it holds is shown to no other server, wherever the route leads by then.
func (x *exchange) bound(method, path string, at place) []byte {
	return []byte(method + " " + x.way.route.Name + " " + path + " " + at.scheme + "://" + at.authority())
}

// redeem has a request go where its ticket says.
func (x *exchange) redeem(out *http.Request) *no {
	bad := refusal("ticket", "this address of LFS is none of this agent-init's, or too old: ask the batch API again")
	sealed, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(x.query, ticketName+"="))
	if err != nil {
		return bad
	}
	data, err := x.proxy.seal.Open(nil, nil, sealed, x.bound(out.Method, x.path, x.goal.up.place))
	var t ticket
	if err != nil || json.Unmarshal(data, &t) != nil || time.Now().Unix() > t.Until {
		return bad
	}
	to, err := url.ParseRequestURI(t.URI)
	if err != nil {
		return bad
	}
	out.URL.Path, out.URL.RawPath, out.URL.RawQuery = to.Path, to.RawPath, to.RawQuery
	for name, value := range t.Header {
		name = http.CanonicalHeaderKey(name)
		if httpguts.ValidHeaderFieldName(name) && httpguts.ValidHeaderFieldValue(value) && !framing[name] {
			out.Header[name] = []string{value}
		}
	}
	return nil
}

// framing is of a connection or a message: a server that tells such headers tells them for another one.
var framing = map[string]bool{
	"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Connection": true, "Keep-Alive": true, "Te": true,
	"Trailer": true, "Upgrade": true, "Expect": true, "Content-Encoding": true, "Accept-Encoding": true,
}

// ticketed says whether an endpoint is asked by a ticket.
func ticketed(e *route.Endpoint) bool { return len(e.Query) == 1 && e.Query[0] == ticketName }
