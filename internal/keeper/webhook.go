package keeper

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// post has the broker post n to a webhook, signed if there is a key, and takes what that answers to a request.
func (e *errands) post(ctx context.Context, w policy.Webhook, n notification) error {
	var order stage.Post
	var err error
	if order.Body, err = stage.Body(n); err != nil {
		return err
	}
	if e.approvals.settings().Secret != "" {
		key, err := e.approvals.key()
		if err != nil {
			return err
		}
		order.Headers = key.Headers(fmt.Sprintf("%s-%d-%s", e.approvals.desk.Start(), n.Request.Number, n.Event), time.Now(), order.Body)
		order.Answers = n.Approval != nil
	}
	sent, err := e.broker.post(ctx, w, order)
	if err != nil {
		return fmt.Errorf("the webhook was not called: %w", err)
	}
	_, host, _ := w.URL("")
	e.guardian(audit.Info, "notify: "+host+" was told of request "+strconv.Itoa(int(n.Request.Number)))
	return e.approvals.take(ctx, linesOf(wayWebhook, sent))
}
