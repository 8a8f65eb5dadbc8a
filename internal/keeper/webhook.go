package keeper

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// post has the broker post n to a webhook.
func (e *errands) post(ctx context.Context, w policy.Webhook, n notification) error {
	if e.broker == nil {
		return errors.New("there is no broker to call a webhook: start the container again to have one")
	}
	var secret []byte
	var err error
	if w.Credential != "" {
		if secret, err = policy.ReadSecret(w.Credential, !e.shared()); err != nil {
			return err
		}
	}
	order := stage.Post{Body: n}
	if order.URL, order.Host, err = w.URL(string(secret)); err != nil {
		return err
	}
	if !w.Fills() {
		order.Bearer = string(secret)
	}
	ctx, cancel := context.WithTimeout(ctx, errandTime)
	defer cancel()
	answer, _, err := e.broker.hand(wire.OpNotify, "post", order)
	if err != nil {
		return err
	}
	select {
	case m, ok := <-answer:
		if !ok {
			return errors.New("the broker ended before it had called the webhook")
		}
		if m.Err {
			said := wire.PlainText(m.Text)
			return fmt.Errorf("the webhook was not called: %s", said)
		}
		e.guardian(audit.Info, "notify: "+order.Host+" was told of request "+strconv.Itoa(int(n.Request.Number)))
		return nil
	case <-ctx.Done():
		return errors.New("the broker did not say in time whether it has called the webhook")
	}
}
