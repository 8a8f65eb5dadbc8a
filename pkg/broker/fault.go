package broker

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

// gone is a fault that nobody is told of.
const gone = "gone"

// fault says why the API was not reached. The words are ours: what a server sent, or net/http says of it, may repeat
// the credential.
func (x *exchange) fault(ctx context.Context, err error) *no {
	host := x.way.up.place.host
	n := &no{&judge.Refusal{What: "upstream"}, true}
	var (
		named    *net.DNSError
		dialed   dialError
		other    x509.HostnameError
		unknown  x509.UnknownAuthorityError
		invalid  x509.CertificateInvalidError
		wrong    *tls.CertificateVerificationError
		op       *net.OpError
		notTLS   tls.RecordHeaderError
		timeout  net.Error
		cause    = context.Cause(ctx)
		tooLate  = errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
		timesOut = errors.As(err, &timeout) && timeout.Timeout()
	)
	certificate := func(text string) {
		n.Text, n.again = "the certificate of "+host+" "+text+"; nothing was sent", false
	}
	switch {
	case errors.Is(cause, errSilent):
		n.What, n.Text = "late", host+" was silent for too long"
	case x.way.up.ctx.Err() != nil:
		n.Text, n.again = "the policy has changed: this route is no more", false
	case cause != nil:
		n.What, n.Text = gone, "the client hung up"
	case errors.As(err, &other):
		certificate("is another name's")
	case errors.As(err, &unknown):
		certificate("is signed by nobody whom this image trusts")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		certificate("has expired, or is not valid yet")
	case errors.As(err, &wrong):
		certificate("is not valid")
	case errors.As(err, &notTLS):
		n.Text, n.again = host+" speaks no TLS; nothing was sent", false
	case errors.As(err, &op) && op.Op == "remote error": // crypto/tls has an alert so
		n.Text = host + " refused the TLS handshake"
	case errors.As(err, &named):
		n.Text = "the name " + host + " could not be resolved: " + named.Err
	case errors.Is(err, syscall.ECONNREFUSED):
		n.Text = host + " refused the connection"
	case errors.As(err, &dialed) && (tooLate || timesOut):
		n.What, n.Text = "late", host+" did not answer in time"
	case errors.As(err, &dialed):
		n.Text = host + " could not be reached: " + dialed.Error()
	case tooLate || timesOut:
		n.What, n.Text = "late", host+" did not answer in time"
	case errors.Is(err, syscall.ECONNRESET):
		n.Text = host + " reset the connection"
	default:
		n.Text = host + " broke off before it answered, or answered with what is no HTTP"
	}
	return n
}
