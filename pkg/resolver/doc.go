// Package resolver is the only DNS server that the agent reaches. It answers
// for allowed names only, and opens an answer's addresses in the firewall
// before it gives the answer away.
//
// # What is asked upstream
//
// The policy decides first: a name that it does not allow is never sent to any
// server, in no form. What is sent is built from scratch: the name in lower
// case, type A or AAAA, a random identifier, a fresh socket (so a fresh source
// port) and an EDNS0 record that holds nothing but the size 1232. Neither the
// case of the client's letters nor any of its options reach an upstream, so
// they carry nothing out. A reply counts only if it comes from the server that
// was asked, with the identifier and the question that were sent.
//
// Upstreams are tried in the order given. One that does not answer within a
// second, or answers with a failure, is passed over for a while that doubles
// up to 30 s; then one query tries it again. UDP changes to TCP on truncation
// or on forged replies, and an upstream with a TLSName is asked by DNS over TLS
// (RFC 7858), one connection for each query.
//
// # What counts as an answer
//
// Starting from the name asked for, at most 8 CNAME records are followed, each
// owned by the target of the one before. Only addresses owned by the end of
// that chain count; a target that a deny rule names ends it. Addresses that the
// policy does not admit for the name (private ones without the word private,
// loopback, metadata, any IPv4 address in IPv6 clothes) are stripped and
// audited. Of more addresses than the limit, a random choice is kept, so that
// over time each gets its turn.
//
// Then Admit is called, and only what it returns is given to the client. The
// lease asked for is the client's TTL and a grace of 60 s on top, for a client
// that connects at the very end of the TTL; the client's TTL is the smallest of
// the chain, clamped to 1 s and the policy's max_ttl. A cached answer shows the
// TTL that remains, so it never outlives its lease and never needs to be
// admitted again. If Admit fails the answer is SERVFAIL. Nothing stale is served.
//
// # What the client sees
//
//   - A and AAAA of an allowed name: the addresses, owned by the name as the
//     client wrote it. CNAME records are left out: an agent has no use for names
//     that it may not ask for, and the audit log has them.
//   - Every other type of an allowed name: no data. So there are no TXT bytes,
//     and no HTTPS records with address hints or ECH keys.
//   - A name that isn't allowed: NXDOMAIN, because musl waits and asks again on
//     everything else but NOERROR, with a negative TTL of 5 s, so that a grant
//     works soon, and for those who speak EDNS an Extended DNS Error (RFC 8914).
//   - localhost (RFC 6761) and the names of the policy's hosts file are answered
//     from here, reverse look-ups and use-application-dns.net are NXDOMAIN.
//   - A name that a search domain was put behind: NXDOMAIN at once; the name
//     without it is audited, once.
//   - Odd messages: FORMERR unless there is exactly one question and nothing but
//     EDNS beside it, NOTIMP, REFUSED for other classes, BADVERS. Responses are
//     dropped.
//
// # Limits
//
// Answers from the cache, refusals and errors are made by the socket's readers
// on the spot and have no queue. Only a question for an upstream takes one of
// the bounded places, shared by all who ask the same. Below a wildcard only so
// many new names are asked for in a minute; odd ones (long, or with a long
// label) count fourfold, the excess is NXDOMAIN. TCP connections have idle and
// total times, and the oldest makes room for a new one, so holding connections
// open shuts nobody out.
package resolver
