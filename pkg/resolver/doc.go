// Package resolver is the only DNS server that the agent reaches. It answers for allowed names only, and opens an
// answer's addresses in the firewall before it gives the answer away.
//
// # What is asked upstream
//
// A name that the policy does not allow is never sent to any server. What is sent is built from scratch: the name in
// lower case, type A or AAAA, a random identifier, a fresh source port and an EDNS0 record that holds nothing but a
// size. So neither the case of the client's letters nor its options carry anything out. A reply counts only if it comes
// from the server that was asked, with the identifier and the question that were sent. UDP changes to TCP on truncation
// or on forged replies. An upstream with a TLSName is asked by DNS over TLS (RFC 7858), one connection for each query.
//
// # What counts as an answer
//
// At most 8 CNAME records are followed, each owned by the target of the one before; a target that a deny rule names
// ends the chain. Only addresses owned by its end count. Those that the policy does not admit for the name (private
// ones without the word private, loopback, metadata, any IPv4 address in IPv6 clothes) are stripped and audited. Of
// more addresses than the limit, a random choice is kept.
//
// Only what Admit returns is given to the client. The lease is the client's TTL and a grace of 60 s, for a client that
// connects at the very end; the TTL is the smallest of the chain, clamped to 1 s and the policy's max_ttl. A cached
// answer shows what remains of its TTL, so it never outlives its lease. Nothing stale is served.
//
// # What the client sees
//
//   - A and AAAA of an allowed name: the addresses, owned by the name as the client wrote
//     it, without the CNAME records.
//   - Other types: no data. So there are no TXT bytes, and no HTTPS records with address
//     hints or ECH keys.
//   - A name that isn't allowed: NXDOMAIN, because musl asks again on everything else
//     but NOERROR, with a negative TTL of 5 s, so that a grant works soon, and for those
//     who speak EDNS an Extended DNS Error (RFC 8914).
//   - localhost (RFC 6761) and the policy's hosts are answered from here; reverse
//     look-ups and use-application-dns.net are NXDOMAIN. Of a name below a search domain,
//     the name without it is audited, once.
//   - Odd messages: FORMERR unless there is exactly one question and no answer, NOTIMP,
//     REFUSED for other classes, BADVERS. Responses are dropped.
//
// # Limits
//
// The socket's readers answer from the cache, refuse and fail on the spot. Only a question for an upstream takes one of
// the bounded places, shared by all who ask the same. Below a wildcard only so many new names are asked for in a
// minute; odd ones (long, or with a long label) count fourfold. TCP connections have idle and total times, and the
// oldest makes room for a new one, so holding them open shuts nobody out.
package resolver
