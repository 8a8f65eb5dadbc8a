// Package gateway is the name gate: it looks at the name inside a connection
// before it lets the connection through. An address set can't tell two sites on
// one address apart; the gate can.
//
// The kernel redirects TCP to ports 80 and 443 of named entries to a Server. It
// asks the kernel for the original destination, reads the TLS ClientHello or
// the HTTP request heads, and connects onward to that original address (it
// resolves nothing) only if the name is valid, the policy allows it on that port
// and the address is leased to that very name. Every byte is handed over
// unchanged but for a few fields of HTTP. TLS is not broken, no certificate
// authority is needed. What fails
// the test is reset at once; an HTTP request gets a 403 that says why. Both are
// recorded.
//
// # Refusals
//
// Port 443 carries TLS that begins with a ClientHello which has exactly one
// server name; a second ClientHello, which a server may ask for (RFC 8446,
// section 4.1.4), must repeat it. An Encrypted ClientHello extension passes
// if the outer name does, unless the policy refuses all of them: real ones and GREASE
// look alike. Port 80 carries
// HTTP/1.0 and 1.1 in the strictest reading of RFC 9112, so that no two readers
// can disagree where a request ends or whom it is for. Nothing follows a request with a
// body on its connection, because servers may overlook the body. HTTP/2 is refused there,
// and so are Upgrade and CONNECT, unless the policy has a word for them. Expect:
// 100-continue is answered by the gate itself and not passed on, because servers
// disagree about what follows it.
//
// # Switching protocols
//
// A request that would end HTTP on its connection is the last one that is
// passed on until the server has answered it. If it answers by switching, to
// what was offered, bytes pass as they are from then on; if not, what the client
// has sent meanwhile is judged as the next request. A CONNECT leads to a proxy,
// which the policy names; where it leads to is judged as if there were no
// proxy. An offer of h2c that the policy has no word for is not passed on, and
// the request goes on without it.
//
// # By address
//
// Where the kernel can hold no sets of addresses, everything comes here, and
// Config.Direct tells what may pass by its address alone: entries of the policy
// that name addresses, and names on ports that can't be looked into, such as 22.
// Those are relayed unseen.
//
// # Known limits
//
// What is encrypted can't be seen: a request inside TLS may name another host
// than the hello did (domain fronting), an HTTP/2 client may use one connection
// for every name of the certificate, and ECH may hide an inner name from all but
// the provider of an allowed outer one. Where that matters, don't allow names
// on providers that serve strangers under the same address.
//
// A redirected connection is accepted before the server was asked, so a server
// that refuses connections shows as a reset, not as a refusal to connect.
package gateway
