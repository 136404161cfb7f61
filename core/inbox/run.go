package inbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/connectd/connectd/core"
)

// session is a transaction, whoever began it.
type session interface {
	exec(ctx context.Context, query string, args ...any) error
	// read scans one row; without one it is an error.
	read(ctx context.Context, query string, args []any, into ...any) error
}

// command is one call's.
type command struct {
	*Inbox
	session
	id, token, savepoint string
}

// run does one command's work in a transaction that somebody else ends. When it returns a receipt, be it with a *Failure, the
// transaction is fit to be committed.
func (in *Inbox) run(ctx context.Context, s session, id string, effect func() (string, error)) (Receipt, error) {
	if err := in.checkCommand(id); err != nil {
		return Receipt{}, err
	}
	name := fnv.New64a()
	name.Write([]byte(in.consumer + "\x00" + id))
	c := &command{Inbox: in, session: s, id: id, token: rand.Text(), savepoint: fmt.Sprintf("connectd_%016x", name.Sum64())}
	receipt, err := c.claimed(ctx)
	if err != nil {
		return Receipt{}, fmt.Errorf("inbox: command %q: %w", id, err)
	}
	if receipt.Repeat {
		return receipt, nil
	}
	result, err := effect()
	if err == nil {
		err = checkResult(result)
	}
	if err != nil {
		return c.failed(ctx, err)
	}
	// The savepoint is gone when the transaction in which the effect began is: when the effect has committed, or MySQL has
	// ended it for a deadlock that the effect took for a small mishap.
	if err := c.exec(ctx, "RELEASE SAVEPOINT "+c.savepoint); err != nil {
		return Receipt{}, fmt.Errorf("inbox: command %q: the effect has ended its transaction, or left it broken: %w", id, err)
	}
	receipt, err = c.settled(ctx, Done, result)
	if err != nil {
		return Receipt{}, fmt.Errorf("inbox: command %q: %w", id, err)
	}
	return receipt, nil
}

// claimed sets the savepoint and takes the receipt: it is ours until the transaction ends, or it is a repeat, and then
// nothing is left of the call.
func (c *command) claimed(ctx context.Context) (Receipt, error) {
	if err := c.exec(ctx, "SAVEPOINT "+c.savepoint); err != nil {
		return Receipt{}, fmt.Errorf("set a savepoint: %w", err)
	}
	var status string
	var result *string
	var at int64
	var err error
	if c.dialect == MySQL {
		if err = c.exec(ctx, c.text.claim, c.id, c.consumer, c.token, c.token); err == nil {
			err = c.read(ctx, c.text.look, []any{c.id, c.consumer}, &status, &result, &at)
		}
	} else {
		err = c.read(ctx, c.text.claim, []any{c.id, c.consumer, c.token}, &status, &result, &at)
	}
	if err != nil {
		return Receipt{}, fmt.Errorf("claim the receipt: %w", err)
	}
	receipt := c.receipt(Status(status), "", at)
	if result != nil {
		receipt.Result = *result
	}
	switch {
	case status == started && receipt.Result == c.token:
		return receipt, nil
	case status == string(Done):
		receipt.Repeat = true
		return receipt, c.undo(ctx)
	case status == started:
		return Receipt{}, errors.Join(errors.New("an earlier effect was committed without its receipt: see how much of it there is, then delete the receipt, or set its status to done"), c.undo(ctx))
	default:
		return Receipt{}, errors.Join(fmt.Errorf("its receipt has status %q, which is neither done nor failed", status), c.undo(ctx))
	}
}

// failed takes back what the effect did, and for a *Failure writes the receipt. Taking back gives up the claim: when another
// call completes the command before it is made again, the command is done.
func (c *command) failed(ctx context.Context, why error) (Receipt, error) {
	if err := c.undo(ctx); err != nil {
		return Receipt{}, fmt.Errorf("inbox: command %q: %w", c.id, errors.Join(why, err))
	}
	var failure *Failure
	if !errors.As(why, &failure) {
		return Receipt{}, fmt.Errorf("inbox: command %q: %w", c.id, why)
	}
	receipt, err := c.claimed(ctx)
	if err == nil && receipt.Repeat {
		return receipt, nil
	}
	if err == nil {
		err = c.exec(ctx, "RELEASE SAVEPOINT "+c.savepoint)
	}
	if err == nil {
		receipt, err = c.settled(ctx, Failed, core.CleanText(failure.Reason))
	}
	if err != nil {
		return Receipt{}, fmt.Errorf("inbox: command %q: %w", c.id, errors.Join(why, fmt.Errorf("write the receipt of that: %w", err)))
	}
	return receipt, fmt.Errorf("inbox: command %q: %w", c.id, why)
}

func (c *command) undo(ctx context.Context) error {
	for _, statement := range []string{"ROLLBACK TO SAVEPOINT ", "RELEASE SAVEPOINT "} {
		if err := c.exec(ctx, statement+c.savepoint); err != nil {
			return fmt.Errorf("take back: %w", err)
		}
	}
	return nil
}

func (c *command) settled(ctx context.Context, status Status, result string) (Receipt, error) {
	var ref *string
	if result != "" {
		ref = &result
	}
	var at int64
	var err error
	args := []any{string(status), ref, c.id, c.consumer, c.token}
	if c.dialect == MySQL {
		if err = c.exec(ctx, c.text.settle, args...); err == nil {
			err = c.read(ctx, c.text.settled, []any{c.id, c.consumer, string(status), ref}, &at)
		}
	} else {
		err = c.read(ctx, c.text.settle, args, &at)
	}
	if err != nil {
		return Receipt{}, fmt.Errorf("write the receipt: %w", err)
	}
	return c.receipt(status, result, at), nil
}

func (c *command) receipt(status Status, result string, at int64) Receipt {
	return Receipt{CommandID: c.id, Consumer: c.consumer, Status: status, Result: result, At: time.UnixMicro(at).UTC()}
}
