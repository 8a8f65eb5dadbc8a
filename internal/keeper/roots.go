package keeper

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/policy"
)

// rootFiles are where distributions have their certificate authorities, as crypto/x509 looks for them (root_linux.go).
var rootFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Alpine, Arch
	"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora, RHEL 6
	"/etc/ssl/ca-bundle.pem",                            // openSUSE
	"/etc/pki/tls/cacert.pem",                           // OpenELEC
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // RHEL 7
	"/etc/ssl/cert.pem",                                 // Alpine
}

// roots are the image's certificate authorities, which the broker trusts. The keeper reads them, since the broker opens
// no file, and parses nothing of them.
type roots struct {
	files []string
	seen  string // what tells one version of the files from another
	pem   []byte
}

// newRoots looks where SSL_CERT_FILE says, as programs in the container do, or else where the image has them.
func newRoots(environ map[string]string) *roots {
	if f := environ["SSL_CERT_FILE"]; f != "" {
		return &roots{files: []string{f}}
	}
	return &roots{files: rootFiles}
}

// read reads the first file that is there. It has to be root's: who writes it could read what the broker sends.
func (r *roots) read() error {
	seen := r.look()
	for _, f := range r.files {
		data, err := policy.ReadTrusted(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if bad, ok := errors.AsType[*policy.FileError](err); ok {
			return fault.New(fault.Policy, bad.Remedy, "the certificate authorities for the broker: %s", bad.What())
		}
		if err != nil {
			return fault.New(fault.Policy, "check the file", "the certificate authorities for the broker: %w", err)
		}
		if len(certificatesIn(data)) == 0 { // as one has that update-ca-certificates has begun to write
			return fault.New(fault.Policy, "install the package ca-certificates in the image, or name another file in SSL_CERT_FILE",
				"the certificate authorities for the broker: %s has no certificate", f)
		}
		r.seen, r.pem = seen, data
		return nil
	}
	return fault.New(fault.Policy, "install the package ca-certificates in the image, or name a file in SSL_CERT_FILE",
		"the broker speaks TLS for a route or an inspected name, and there are no certificate authorities (%s)", r.files[0])
}

// changed says whether read would read something else.
func (r *roots) changed() bool { return r.look() != r.seen }

func (r *roots) look() (seen string) {
	for _, f := range r.files {
		var st unix.Stat_t
		if err := unix.Stat(f, &st); err != nil {
			seen += err.Error()
			continue
		}
		seen += fmt.Sprintf("%d %d %d %v %v\n", st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim)
	}
	return seen
}
