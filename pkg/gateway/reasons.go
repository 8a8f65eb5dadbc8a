package gateway

import "github.com/agent-init/agent-init/pkg/policy"

// refusal is why a connection or a request is not let through. It is an error
// so that readers can return it; its words are for people.
type refusal uint8

func (r refusal) Error() string { return words[r] }

const (
	_ refusal = iota

	// refusedByPolicy has the policy's own words, which are its decision's.
	refusedByPolicy

	// Why connections are refused whatever is inside.
	refusedTooMany
	refusedEvicted
	refusedNoOriginal
	refusedDirect
	refusedPort
	refusedTimeout
	refusedHungUp
	refusedRevoked

	// Why a name is refused, beside the reasons of the policy.
	refusedAddress
	refusedLease
	refusedKeeper
	refusedName

	// Why a ClientHello is refused.
	refusedNotTLS
	refusedSSL2
	refusedRecord
	refusedNotHello
	refusedHelloSize
	refusedHello
	refusedNoSNI
	refusedSNI
	refusedManySNI
	refusedRetry
	refusedECH

	// Why an HTTP request is refused.
	refusedNotHTTP
	refusedHTTP2
	refusedHeadSize
	refusedControl
	refusedLineEnd
	refusedRequestLine
	refusedTarget
	refusedConnect
	refusedUpgrade
	refusedUpgradeBody
	refusedBadUpgrade
	refusedField
	refusedFold
	refusedNoHost
	refusedManyHosts
	refusedHostPort
	refusedHostConflict
	refusedLength
	refusedEncoding
	refusedBothLengths
	refusedBody
	refusedConnection
	refusedExpect
	refusedChunk
	refusedTrailer
	refusedSwitch

	refusals // how many there are
)

var words = [refusals]string{
	refusedByPolicy:   "not allowed",
	refusedTooMany:    "too many connections",
	refusedEvicted:    "too many connections wait to be judged",
	refusedNoOriginal: "no original destination",
	refusedDirect:     "connected to the gate itself",
	refusedPort:       "not a port of the gate",
	refusedTimeout:    "nothing to judge came in time",
	refusedHungUp:     "closed before there was anything to judge",
	refusedRevoked:    "no longer allowed",

	refusedAddress: "the name may not be reached at this address",
	refusedLease:   "the address is not leased to this name",
	refusedKeeper:  "could not learn whose address this is",
	refusedName:    "not a valid host name",

	refusedNotTLS:    "not tls",
	refusedSSL2:      "sslv2 hello",
	refusedRecord:    "malformed tls record",
	refusedNotHello:  "tls does not begin with a client hello",
	refusedHelloSize: "client hello is too long",
	refusedHello:     "malformed client hello",
	refusedNoSNI:     "no server name in the client hello",
	refusedSNI:       "malformed server name in the client hello",
	refusedManySNI:   "more than one server name in the client hello",
	refusedRetry:     "second client hello differs in its server name",
	refusedECH:       "encrypted client hello, which the policy refuses",

	refusedNotHTTP:      "not http/1",
	refusedHTTP2:        "http/2 without tls",
	refusedHeadSize:     "request head is too long",
	refusedControl:      "control character in the request head",
	refusedLineEnd:      "line does not end in cr lf",
	refusedRequestLine:  "malformed request line",
	refusedTarget:       "malformed request target",
	refusedConnect:      "connect is not allowed",
	refusedUpgrade:      "upgrade is not allowed",
	refusedUpgradeBody:  "upgrade of a request with a body",
	refusedBadUpgrade:   "malformed upgrade",
	refusedField:        "malformed header field",
	refusedFold:         "folded header field",
	refusedNoHost:       "no host",
	refusedManyHosts:    "more than one host",
	refusedHostPort:     "host names another port",
	refusedHostConflict: "host and request target disagree",
	refusedLength:       "malformed or repeated content-length",
	refusedEncoding:     "transfer-encoding other than chunked",
	refusedBothLengths:  "both content-length and transfer-encoding",
	refusedBody:         "a body with a method that has none",
	refusedConnection:   "connection names a field that may not be removed",
	refusedExpect:       "unknown expectation",
	refusedChunk:        "malformed chunk",
	refusedTrailer:      "malformed or too long trailer",
	refusedSwitch:       "the server switched protocols unasked",
}

// ofNames says whether r is about a name or an address that the policy lets nobody
// reach, which is what monitor mode lets through.
func (r refusal) ofNames() bool {
	switch r {
	case refusedByPolicy, refusedAddress, refusedLease, refusedRevoked, refusedECH:
		return true
	}
	return false
}

// decided is the reason of a decision.
func decided(d policy.Decision) (why refusal, said string) {
	if d.Allowed {
		return 0, d.Reason
	}
	return refusedByPolicy, d.Reason
}
