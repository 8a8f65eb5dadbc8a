package onward

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/agent-init/agent-init/pkg/broker/judge"
)

// FaultOf says what an error of a transport's means: the host is late, a client may try again (upstream), or had better
// not (server). The words are ours: what a server sent, or net/http says of it, may repeat the credential.
func FaultOf(host string, err error) *judge.Refusal {
	var (
		named    *net.DNSError
		dialed   DialError
		other    x509.HostnameError
		unknown  x509.UnknownAuthorityError
		invalid  x509.CertificateInvalidError
		wrong    *tls.CertificateVerificationError
		op       *net.OpError
		notTLS   tls.RecordHeaderError
		timeout  net.Error
		tooLate  = errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
		timesOut = errors.As(err, &timeout) && timeout.Timeout()
	)
	certificate := func(text string) *judge.Refusal {
		return &judge.Refusal{What: "server", Text: "the certificate of " + host + " " + text + "; nothing was sent"}
	}
	again := func(text string) *judge.Refusal { return &judge.Refusal{What: "upstream", Text: text} }
	late := &judge.Refusal{What: "late", Text: host + " did not answer in time"}
	switch {
	case errors.As(err, &other):
		return certificate("is another name's")
	case errors.As(err, &unknown):
		return certificate("is signed by nobody whom this image trusts (a company's authority: agent-init launch --ca FILE, or docs/images.md)")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return certificate("has expired, or is not valid yet")
	case errors.As(err, &wrong):
		return certificate("is not valid")
	case errors.As(err, &notTLS):
		return &judge.Refusal{What: "server", Text: host + " speaks no TLS; nothing was sent"}
	case errors.As(err, &op) && op.Op == "remote error": // crypto/tls has an alert so
		return again(host + " refused the TLS handshake")
	case errors.As(err, &named):
		return again("the name " + host + " could not be resolved: " + named.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return again(host + " refused the connection")
	case errors.As(err, &dialed) && (tooLate || timesOut):
		return late
	case errors.As(err, &dialed):
		return again(host + " could not be reached: " + dialed.Error())
	case tooLate || timesOut:
		return late
	case errors.Is(err, syscall.ECONNRESET):
		return again(host + " reset the connection")
	}
	return again(host + " broke off before it answered, or answered with what is no HTTP")
}
