package keeper

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/approval"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/policy"
)

// The ways on which answers come in, as people read them.
const (
	wayFile    = "file"
	wayWebhook = "webhook"
)

// look takes the answers that are files.
func (a *approvals) look(ctx context.Context) {
	dir := a.settings().Directory
	if dir == "" {
		return
	}
	files, err := policy.ReadDrop(dir, approval.MaxAnswers, approval.MaxLine+1)
	var all []answer
	for _, f := range files {
		if line := strings.TrimSuffix(string(f.Data), "\n"); line != "" { // an annotation that is not there is an empty file
			all = append(all, answer{wayFile + " " + f.Name, line})
		}
	}
	if len(all) > 0 {
		if _, missing := a.key(); missing != nil { // none is taken for judged
			a.tell(wayFile, errors.Join(err, missing))
			return
		}
	}
	a.tell(wayFile, errors.Join(err, a.take(ctx, a.fresh(wayFile, all))))
}

// post has the broker ask a server, and returns what it has answered.
func (k *brokerKeeper) post(ctx context.Context, w policy.Webhook, order stage.Post) (string, error) {
	if k == nil {
		return "", errors.New("there is no broker to call a webhook: start the container again to have one")
	}
	var secret []byte
	var err error
	if w.Credential != "" {
		if secret, err = policy.ReadSecret(w.Credential, !k.shared()); err != nil {
			return "", err
		}
	}
	if order.URL, order.Host, err = w.URL(string(secret)); err != nil {
		return "", err
	}
	if !w.Fills() {
		order.Bearer = string(secret)
	}
	ctx, cancel := context.WithTimeout(ctx, order.Patience()+time.Second)
	defer cancel()
	got, _, err := k.hand(wire.OpNotify, "post", order)
	if err != nil {
		return "", err
	}
	select {
	case m, ok := <-got:
		switch {
		case !ok:
			return "", errors.New("the broker ended before it had called the webhook")
		case m.Err:
			return "", errors.New(wire.PlainText(m.Text))
		}
		return m.Text, nil
	case <-ctx.Done():
		return "", errors.New("the broker did not say in time whether it has called the webhook")
	}
}
