// Package policy reads what an agent may reach, from allowlists and policy files, into one immutable Policy that says
// which line decides.
//
// A list has one entry per line; # begins a comment:
//
//	HOST[:PORT[/PROTO]] [METHODS /PATH] [WORD…]
//
// HOST is a name, a wildcard *.NAME (NAME and every name below it), an IPv4 address or block, or an IPv6 address or
// block, which stands in brackets if a port follows: [2001:db8::1]:443, [2001:db8::]/32:443. An entry without a port is
// about 443/tcp and 80/tcp; PROTO is tcp, which goes without saying, or udp. A regular expression that means just a
// name, or a wildcard, is read as that. private says that the name may resolve to private addresses, required that the
// self-test must reach it, upgrade that HTTP on port 80 may switch to another protocol, connect that the name is an
// HTTP proxy. @NAME stands for all entries of a preset, and ! in front of any of these denies it, on every port if none
// is given. Deny always wins; the order of entries means nothing.
//
// An entry with METHODS /PATH, or with another word about requests (read, graphql=query, max_upload=SIZE, websocket,
// observe), is about 443/tcp if it names no port. It makes its name an inspected one on that port: Settings.Inspected has
// all that entries say of its requests. An entry that allows the same name and port whole is an error. tls and http say
// what another port carries, and direct that nobody looks into it: Policy.Way says which way connections go out.
//
// Names are compared in lower case, as A-labels (IDNA's lookup profile), without a trailing dot. An address's Class
// bounds what entries can open.
//
// A file in YAML has services (names of presets), domains, networks and deny (lists of entries), and Settings.
//
// A setting is made in one file; lists of several files are joined. Unknown keys, anchors and aliases are errors.
//
// Looking a name up takes as many steps as it has labels, and looking an address up as many as there are different
// prefix lengths, however long the lists are. A step compares entries of different ports.
package policy
