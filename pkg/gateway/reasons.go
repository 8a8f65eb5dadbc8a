package gateway

import "slices"

// refusal is why a connection or a request is not let through. It is an error so that readers can return it. Each has
// one value below, by which it is known; its words are for people.
type refusal struct{ words string }

func (r *refusal) Error() string { return r.words }

var (
	refusedByPolicy = &refusal{"not allowed"} // has the words of the policy's decision

	// Connections, whatever is inside.
	refusedTooMany    = &refusal{"too many connections"}
	refusedEvicted    = &refusal{"too many connections wait to be judged"}
	refusedStill      = &refusal{"too many connections, and nothing moved on this one for longest"}
	refusedNoOriginal = &refusal{"no original destination"}
	refusedDirect     = &refusal{"connected to the gate itself"}
	refusedBroker     = &refusal{"the broker could not take it over"}
	refusedUnbrokered = &refusal{"inspected by the broker, and there is none"}
	refusedProxied    = &refusal{"it would go by the upstream proxy, and there is no broker"}
	refusedTimeout    = &refusal{"nothing to judge came in time"}
	refusedHungUp     = &refusal{"closed before there was anything to judge"}
	refusedRevoked    = &refusal{"no longer allowed"}

	// Names, beside the reasons of the policy.
	refusedAddress = &refusal{"the name may not be reached at this address"}
	refusedLease   = &refusal{"the address is not leased to this name"}
	refusedKeeper  = &refusal{"could not learn whose address this is"}
	refusedName    = &refusal{"not a valid host name"}
	refusedNowhere = &refusal{"no address of the name was found"}

	// A ClientHello.
	refusedNotTLS    = &refusal{"not tls: another protocol passes on this port if the entry says direct"}
	refusedSSL2      = &refusal{"sslv2 hello"}
	refusedRecord    = &refusal{"malformed tls record"}
	refusedNotHello  = &refusal{"tls does not begin with a client hello"}
	refusedHelloSize = &refusal{"client hello is too long"}
	refusedHello     = &refusal{"malformed client hello"}
	refusedNoSNI     = &refusal{"no server name in the client hello"}
	refusedSNI       = &refusal{"malformed server name in the client hello"}
	refusedManySNI   = &refusal{"more than one server name in the client hello"}
	refusedRetry     = &refusal{"second client hello differs in its server name"}
	refusedPlain     = &refusal{"the policy has http on this port of the name, and this is tls"}
	refusedTLS       = &refusal{"the policy has tls on this port of the name, and this is http"}
	refusedECH       = &refusal{"encrypted client hello, which the policy refuses"}

	// An HTTP request.
	refusedNotHTTP      = &refusal{"not http/1: another protocol passes on this port if the entry says direct"}
	refusedHTTP2        = &refusal{"http/2 without tls"}
	refusedHeadSize     = &refusal{"request head is too long"}
	refusedControl      = &refusal{"control character in the request head"}
	refusedLineEnd      = &refusal{"line does not end in cr lf"}
	refusedRequestLine  = &refusal{"malformed request line"}
	refusedTarget       = &refusal{"malformed request target"}
	refusedConnect      = &refusal{"connect is not allowed"}
	refusedUpgrade      = &refusal{"upgrade is not allowed"}
	refusedUpgradeBody  = &refusal{"upgrade of a request with a body"}
	refusedBadUpgrade   = &refusal{"malformed upgrade"}
	refusedField        = &refusal{"malformed header field"}
	refusedFold         = &refusal{"folded header field"}
	refusedNoHost       = &refusal{"no host"}
	refusedManyHosts    = &refusal{"more than one host"}
	refusedHostPort     = &refusal{"host names another port"}
	refusedHostConflict = &refusal{"host and request target disagree"}
	refusedLength       = &refusal{"malformed or repeated content-length"}
	refusedEncoding     = &refusal{"transfer-encoding other than chunked"}
	refusedBothLengths  = &refusal{"both content-length and transfer-encoding"}
	refusedBody         = &refusal{"a body with a method that has none"}
	refusedConnection   = &refusal{"connection names a field that may not be removed"}
	refusedExpect       = &refusal{"unknown expectation"}
	refusedChunk        = &refusal{"malformed chunk"}
	refusedTrailer      = &refusal{"malformed or too long trailer"}
	refusedSwitch       = &refusal{"the server switched protocols unasked"}
	refusedTunnel       = &refusal{"an inspected name by way of a proxy"}
	refusedBesideProxy  = &refusal{"another name on a connection by the upstream proxy, which leads to one"}
	refusedBehind       = &refusal{"an inspected name behind another one on the same connection"}
)

// ofNames says whether r is about a name or an address that the policy lets nobody
// reach, which is what monitor mode lets through.
func (r *refusal) ofNames() bool {
	return slices.Contains([]*refusal{refusedByPolicy, refusedAddress, refusedLease, refusedRevoked, refusedECH}, r)
}
