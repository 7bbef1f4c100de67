package prepared

import "github.com/open-policy-agent/opa/v1/ast"

// maxWritten is of how many elements one value may be that a rule's variables make. OPA writes out all that they stand for when
// it evaluates an expression, and looks at its context only afterwards.
const maxWritten = 1 << 16

// sizes has how many elements each variable of a rule stands for, if that is more than one. What comes from input, inventory
// and functions counts as one: it is referred to, and not written out.
type sizes map[ast.Var]int

// sizesStage is a stage before the one that checks types, which writes out values, too.
var sizesStage = ast.CompilerStageDefinition{Name: "CheckSizes", MetricName: "compile_stage_check_sizes", Stage: checkSizes}

// checkSizes refuses a rule in which each of many variables refers several times to the one before, such as b := [a, a],
// c := [b, b] and so on: thirty lines would take all memory in one step.
func checkSizes(compiler *ast.Compiler) *ast.Error {
	for _, module := range compiler.Modules {
		for _, rule := range module.Rules {
			found, largest := sizes{}, 0
			ast.NewGenericVisitor(func(node any) bool {
				if expr, isExpr := node.(*ast.Expr); isExpr && (expr.IsEquality() || expr.IsAssignment()) {
					found.unify(expr.Operand(0), expr.Operand(1))
				}
				return false
			}).Walk(rule)
			ast.WalkTerms(rule, func(term *ast.Term) bool {
				largest = max(largest, found.of(term))
				return false
			})
			if largest > maxWritten {
				return ast.NewError(
					ast.CompileErr, rule.Location,
					"the variables of the rule make a value of more than %d elements: refer less often to values that refer to others several times",
					maxWritten,
				)
			}
		}
	}
	return nil
}

// unify has each variable of one side stand for the other side. The compiler has brought expressions into an order in which
// variables are known before they are used.
func (s sizes) unify(one, other *ast.Term) {
	ofOne, ofOther := s.of(one), s.of(other)
	s.stand(one, ofOther)
	s.stand(other, ofOne)
}

func (s sizes) stand(side *ast.Term, size int) {
	switch value := side.Value.(type) {
	case ast.Var:
		s[value] = max(s[value], size)
	case *ast.Array:
		value.Foreach(func(each *ast.Term) { s.stand(each, size) })
	case ast.Object:
		value.Foreach(func(_, each *ast.Term) { s.stand(each, size) })
	}
}

// of returns how many elements are written out for a term, at most one more than the limit.
func (s sizes) of(term *ast.Term) int {
	written := 1
	add := func(each *ast.Term) bool {
		written += s.of(each)
		return written > maxWritten
	}
	switch value := term.Value.(type) {
	case ast.Var:
		return max(1, s[value])
	case ast.Ref:
		for _, each := range value[1:] {
			add(each)
		}
	case *ast.Array:
		if !term.IsGround() {
			value.Until(add)
		}
	case ast.Set:
		if !term.IsGround() {
			value.Until(add)
		}
	case ast.Object:
		if !term.IsGround() {
			value.Until(func(key, each *ast.Term) bool { return add(key) || add(each) })
		}
	}
	return min(written, maxWritten+1)
}
