// Package gateway is the name gate: it looks at the name inside a connection before it
// lets the connection through. An address set can't tell two sites on one address apart.
//
// The kernel redirects TCP to named entries to a Server: to ports 80 and 443, and to those of which the policy says what
// they carry. It reads the TLS ClientHello or the HTTP
// request heads, and connects onward only if the policy allows the name on that port and the original address is leased
// to that very name. If that address does not answer, others that are leased to the name are tried beside it (RFC 8305):
// the client can't, since its connection was accepted. TLS is not broken. What fails is
// reset at once, if the client can't be told: an HTTP request gets a 403 that says why, and a ClientHello that was judged
// the alert access_denied. All are recorded.
//
// # Refusals
//
// Port 443 carries TLS, port 80 HTTP, and any other port that comes here what the policy says of the name on it: the
// first byte tells which of the two a connection is.
//
// TLS begins with a ClientHello of exactly one server name. A second one, which a server may ask for (RFC 8446, section
// 4.1.4), must repeat it. An Encrypted ClientHello passes if the outer name does, unless the policy refuses all of them:
// real ones and GREASE look alike.
//
// HTTP is HTTP/1.0 and 1.1 in the strictest reading of RFC 9112, so that no two readers can disagree where a
// request ends or whom it is for. Nothing follows a body. HTTP/2 is refused there, and so are Upgrade and CONNECT
// without the policy's word for them; an offer of h2c is left out instead. The gate answers Expect: 100-continue
// itself, because servers disagree about what follows it. Where CONNECT leads to is judged as if without a proxy.
//
// # Inspected names
//
// A connection to a name that the policy has inspected is judged like any other, and not passed on: Config.Hand gives it
// to the broker, with all that was read of it.
//
// # By address
//
// Where the kernel can hold no sets of addresses, everything comes here, and
// Config.Direct tells what may pass unseen, by its address alone.
//
// # Known limits
//
// What is encrypted can't be seen: a request inside TLS may name another host than the hello did (domain fronting), an
// HTTP/2 client may use one connection for every name of the certificate, and ECH may hide an inner name from all but
// the provider of an allowed outer one. Where that matters, don't allow names on providers that serve strangers under
// the same address.
//
// A redirected connection is accepted before the server was asked, so where no address answers, that shows as a reset. To
// ask the server first would tell it of connections that are then refused.
package gateway
