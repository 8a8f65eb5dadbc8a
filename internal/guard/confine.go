package guard

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agent-init/agent-init/internal/upstream"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/privdrop"
)

// confine has the guard give up what it needs no more, before it reads anything that
// is hostile: files by name, programs, other processes, and sockets of its own but
// TCP and UDP. What it will read of files is read first.
func (g *guard) confine(reduced bool) error {
	_ = time.Now().Local().String() // the time zone, for what it says
	ups, err := upstream.Of(g.policy.Load(), g.servers)
	if err != nil {
		return err
	}
	if g.rooted = overTLS(ups); g.rooted {
		if _, err := x509.SystemCertPool(); err != nil { // which is kept for the process
			return fmt.Errorf("read the certificate authorities: %w", err)
		}
	}
	if reduced { // gVisor has filters of its own around every process
		return nil
	}
	return privdrop.Serve()
}

// errRootless has the keeper start another guard, which reads them at its start.
var errRootless = errors.New("the certificate authorities can't be read any more")

func overTLS(list []policy.Upstream) bool {
	return slices.ContainsFunc(list, func(u policy.Upstream) bool { return u.TLSName != "" })
}
