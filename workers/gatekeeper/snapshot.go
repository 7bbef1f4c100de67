package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/open-policy-agent/opa/v1/storage"
)

// snapshotKey is the key of the data of an evaluation in its context.
type snapshotKey struct{}

// withData returns a context in which Rego reads root as data: the parameters of constraints, and the inventory. root must
// not change any more.
func withData(ctx context.Context, root map[string]any) context.Context {
	return context.WithValue(ctx, snapshotKey{}, root)
}

// snapshots is the store of all Rego drivers. It keeps nothing: an evaluation reads the data in its context. So a change of
// a constraint or of the inventory waits for no evaluation, and none waits for it; in OPA's own store a policy that loops
// would hold up every change, and a waiting change every other policy.
type snapshots struct {
	storage.TriggersNotSupported
	storage.WritesNotSupported
}

var errReadOnly = errors.New("the data of an evaluation cannot be changed")

// reading is a transaction.
type reading struct{ root map[string]any }

// ID returns 0: transactions need not be told apart.
func (*reading) ID() uint64 { return 0 }

// NewTransaction returns a transaction that reads the data in the context.
func (snapshots) NewTransaction(ctx context.Context, params ...storage.TransactionParams) (storage.Transaction, error) {
	if len(params) > 0 && params[0].Write {
		return nil, errReadOnly
	}
	root, _ := ctx.Value(snapshotKey{}).(map[string]any)
	return &reading{root}, nil
}

// Read returns the value at a path.
func (snapshots) Read(_ context.Context, transaction storage.Transaction, path storage.Path) (any, error) {
	var value any = transaction.(*reading).root
	for index, key := range path {
		found := false
		switch within := value.(type) {
		case map[string]any:
			value, found = within[key]
		case []any:
			// As in OPA's own store, 01 is not an index.
			at, err := strconv.Atoi(key)
			if found = err == nil && at >= 0 && at < len(within) && strconv.Itoa(at) == key; found {
				value = within[at]
			}
		}
		if !found {
			return nil, &storage.Error{
				Code: storage.NotFoundErr, Message: fmt.Sprintf("%v: document does not exist", path[:index+1]),
			}
		}
	}
	return value, nil
}

// Truncate returns an error.
func (snapshots) Truncate(context.Context, storage.Transaction, storage.TransactionParams, storage.Iterator) error {
	return errReadOnly
}

// Commit ends a transaction.
func (snapshots) Commit(context.Context, storage.Transaction) error { return nil }

// Abort ends a transaction.
func (snapshots) Abort(context.Context, storage.Transaction) {}

// ListPolicies returns none: the policies are compiled before.
func (snapshots) ListPolicies(context.Context, storage.Transaction) ([]string, error) {
	return nil, nil
}

// GetPolicy returns an error.
func (snapshots) GetPolicy(_ context.Context, _ storage.Transaction, id string) ([]byte, error) {
	return nil, fmt.Errorf("the store has no policy %q", id)
}

// UpsertPolicy returns an error.
func (snapshots) UpsertPolicy(_ context.Context, _ storage.Transaction, id string, _ []byte) error {
	return fmt.Errorf("the store takes no policy, found %q", id)
}

// DeletePolicy returns an error.
func (snapshots) DeletePolicy(_ context.Context, _ storage.Transaction, id string) error {
	return fmt.Errorf("the store has no policy %q", id)
}
