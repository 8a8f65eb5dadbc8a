package launch

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"

	"github.com/agent-init/agent-init/internal/fault"
)

const (
	certificates = "/etc/ssl/certs"
	maxAuthority = 1 << 20 // bytes
)

// trust copies the image's certificates into the volume, and adds what it reads to the bundle that all programs of the
// image take.
const trust = `umask 022; cd /mnt && find . -mindepth 1 -delete && cp -a ` + certificates + `/. . && cat >>ca-certificates.crt`

// checkAuthority sees to it that there are certificates in the file, and nothing else, and that each may sign others.
func checkAuthority(file string) ([]byte, error) {
	all, err := readAtMost(file, maxAuthority)
	if err != nil {
		return nil, fault.New(fault.Usage, "name a file of certificates", "--ca: %w", err)
	}
	some := false
	for rest := all; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fault.New(fault.Usage, "give a file of certificates alone", "--ca: %s has a %s in it", file, block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fault.New(fault.Usage, "give a file of certificates", "--ca: %s: %w", file, err)
		}
		if !c.IsCA {
			return nil, fault.New(fault.Usage, "give the certificate of the authority that signed it", "--ca: %s is no authority", c.Subject)
		}
		some = true
	}
	if !some {
		return nil, fault.New(fault.Usage, "give it as PEM: -----BEGIN CERTIFICATE-----", "--ca: there is no certificate in %s", file)
	}
	return all, nil
}

func readAtMost(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s is larger than %d KiB", file, most>>10)
	}
	return b, err
}
