package prepared

import (
	"context"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
)

// Inventory is what Rego reads as data.inventory. It is converted once, where OPA's own store converts what a policy reads
// in each evaluation; and no evaluation locks it: in OPA's own store a policy that loops holds up every change, and a
// waiting change every other policy.
type Inventory struct{ data *ast.Term }

// NewInventory returns an inventory of trees: maps by the elements of a path, and values, which [NewValue] makes, at their
// ends.
func NewInventory(tree map[string]any) *Inventory {
	return &Inventory{ast.ObjectTerm(ast.Item(ast.StringTerm("inventory"), termOf(tree)))}
}

// Value is an object of an inventory.
type Value struct{ term *ast.Term }

// NewValue converts an object.
func NewValue(object any) (*Value, error) {
	value, err := ast.InterfaceToValue(object)
	return &Value{ast.NewTerm(value)}, err
}

func termOf(tree any) *ast.Term {
	if value, isEnd := tree.(*Value); isEnd {
		return value.term
	}
	members := tree.(map[string]any)
	items := make([][2]*ast.Term, 0, len(members))
	for name, member := range members {
		items = append(items, ast.Item(ast.StringTerm(name), termOf(member)))
	}
	return ast.ObjectTerm(items...)
}

// ID is not used: an inventory is the transaction of all evaluations that read it, and nothing is locked.
func (*Inventory) ID() uint64 { return 0 }

// data is the store of all drivers. It keeps nothing: the transaction is the inventory.
type data struct {
	storage.TriggersNotSupported
	storage.PolicyNotSupported
}

// NewTransaction returns an empty inventory, with which a query is prepared.
func (data) NewTransaction(context.Context, ...storage.TransactionParams) (storage.Transaction, error) {
	return NewInventory(map[string]any{}), nil
}

// Read returns an [ast.Value], which the evaluation takes as it is.
func (data) Read(_ context.Context, transaction storage.Transaction, path storage.Path) (any, error) {
	at := transaction.(*Inventory).data
	for _, name := range path {
		switch value := at.Value.(type) {
		case ast.Object:
			at = value.Get(ast.StringTerm(name))
		case *ast.Array:
			index, err := strconv.Atoi(name)
			// As in OPA's own store, 01 is not an index.
			if err != nil || index < 0 || index >= value.Len() || strconv.Itoa(index) != name {
				return nil, notFound(path)
			}
			at = value.Elem(index)
		default:
			at = nil
		}
		if at == nil {
			return nil, notFound(path)
		}
	}
	return at.Value, nil
}

func notFound(path storage.Path) error {
	return &storage.Error{Code: storage.NotFoundErr, Message: path.String() + ": document does not exist"}
}

// Write is not supported: policies only read.
func (data) Write(context.Context, storage.Transaction, storage.PatchOp, storage.Path, any) error {
	return &storage.Error{Code: storage.WritesNotSupportedErr}
}

// Truncate is not supported.
func (data) Truncate(context.Context, storage.Transaction, storage.TransactionParams, storage.Iterator) error {
	return &storage.Error{Code: storage.WritesNotSupportedErr}
}

// Commit ends a transaction.
func (data) Commit(context.Context, storage.Transaction) error { return nil }

// Abort ends a transaction.
func (data) Abort(context.Context, storage.Transaction) {}
