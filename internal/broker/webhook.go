package broker

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/broker/onward"
)

// notify posts what came with a message, and answers it. The keeper bounds how many there are at once.
func (p *process) notify(ctx context.Context, m wire.Message, file *os.File) {
	reply := wire.Message{Op: wire.OpNotify, ID: m.ID}
	answers, err := p.post(ctx, file)
	if reply.Text = answers; err != nil {
		reply.Err, reply.Text = true, wire.PlainText(err.Error())
	}
	if err := p.channel.Deliver(reply); err != nil {
		p.log.Debug("answering the keeper", "error", err)
	}
}

func (p *process) post(ctx context.Context, file *os.File) (answers string, err error) {
	var post stage.Post
	if file == nil {
		return "", errors.New("nothing to post")
	}
	defer file.Close()
	if err := wire.ReadMemfd(file, &post); err != nil {
		return "", err
	}
	<-p.begun // the authorities come with what it was started with
	p.loading.Lock()
	authorities := p.load.Roots
	p.loading.Unlock()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	return p.send(ctx, post, roots)
}

// send posts to a webhook. It follows no redirect, which could lead anywhere, and reads nothing of the
// answer but its status, unless it is to be handed over. What it says of a failure has no word of the server's, and
// nothing of the URL but its host.
func (p *process) send(ctx context.Context, post stage.Post, roots *x509.CertPool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, post.Patience())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, post.URL, bytes.NewReader(post.Body))
	if err != nil {
		return "", errors.New("the URL of the webhook is none")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "agent-init")
	for name, value := range post.Headers {
		r.Header.Set(name, value)
	}
	if post.Bearer != "" {
		r.Header.Set("Authorization", "Bearer "+post.Bearer)
	}
	transport := onward.NewTransport(roots, p.hosts.dial)
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return "", errors.New(onward.FaultOf(post.Host, err).Text)
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return "", fmt.Errorf("%s answered with status %d", post.Host, answer.StatusCode)
	}
	if !post.Answers {
		return "", nil
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, wire.MaxSecret+1))
	switch {
	case err != nil:
		return "", errors.New(post.Host + " did not end its answer")
	case len(body) > wire.MaxSecret:
		return "", fmt.Errorf("%s answered with more than %d KiB", post.Host, wire.MaxSecret>>10)
	}
	return answersIn(string(body)), nil
}

// answersIn are the lines that may be answers to a request, as they are: the keeper, who has the key, judges them. A
// server that only takes notice says something else, such as "ok".
func answersIn(body string) string {
	var lines []string
	for line := range strings.SplitSeq(body, "\n") {
		if strings.Contains(line, "|answer|") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
