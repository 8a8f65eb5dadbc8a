package broker

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/broker/onward"
)

// webhookTime is for a webhook to be looked up, reached and to answer. The keeper waits a little longer.
const webhookTime = 9 * time.Second

// notify posts what came with a message, and answers it. The keeper asks for one after the other.
func (p *process) notify(ctx context.Context, m wire.Message, file *os.File) {
	reply := wire.Message{Op: wire.OpNotify, ID: m.ID}
	if err := p.post(ctx, file); err != nil {
		reply.Err, reply.Text = true, wire.PlainText(err.Error())
	}
	if err := p.channel.Deliver(reply); err != nil {
		p.log.Debug("answering the keeper", "error", err)
	}
}

// posted is a stage.Post as it is read: the body goes on as it is.
type posted struct {
	stage.Post
	Body json.RawMessage `json:"body"`
}

func (p *process) post(ctx context.Context, file *os.File) error {
	var post posted
	if file == nil {
		return errors.New("nothing to post")
	}
	defer file.Close()
	if err := wire.ReadMemfd(file, &post); err != nil {
		return err
	}
	<-p.begun // the authorities come with what it was started with
	p.loading.Lock()
	authorities := p.load.Roots
	p.loading.Unlock()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	return send(ctx, post, roots, func(ctx context.Context, _, addr string) (net.Conn, error) {
		host, text, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, err
		}
		return p.hosts.dial(ctx, host, uint16(port))
	})
}

// send posts to a webhook. It follows no redirect, which could lead anywhere, and reads nothing of the answer but its
// status. What it says of a failure has no word of the server's, and nothing of the URL but its host.
func send(ctx context.Context, post posted, roots *x509.CertPool, dial func(ctx context.Context, network, addr string) (net.Conn, error)) error {
	ctx, cancel := context.WithTimeout(ctx, webhookTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, post.URL, bytes.NewReader(post.Body))
	if err != nil {
		return errors.New("the URL of the webhook is none")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "agent-init")
	if post.Bearer != "" {
		r.Header.Set("Authorization", "Bearer "+post.Bearer)
	}
	transport := onward.NewTransport(roots, dial)
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return errors.New(onward.FaultOf(post.Host, err).Text)
	}
	answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered with status %d", post.Host, answer.StatusCode)
	}
	return nil
}
