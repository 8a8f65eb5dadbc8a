//go:build deps

package deps

import (
	_ "github.com/creack/pty"
	_ "github.com/google/nftables"
	_ "github.com/google/nftables/expr"
	_ "github.com/miekg/dns"
	_ "github.com/vishvananda/netlink"
	_ "github.com/vishvananda/netns"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/net/idna"
	_ "golang.org/x/net/publicsuffix"
	_ "golang.org/x/net/http2"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/net/bpf"
	_ "golang.org/x/net/icmp"
)
