package prepared

import (
	"fmt"

	"github.com/open-policy-agent/frameworks/constraint/pkg/client/drivers/rego/schema"
	clienterrors "github.com/open-policy-agent/frameworks/constraint/pkg/client/errors"
	"github.com/open-policy-agent/frameworks/constraint/pkg/core/templates"
	"github.com/open-policy-agent/frameworks/constraint/pkg/regorewriter"
	"github.com/open-policy-agent/opa/v1/ast"
)

// hook finds the violations of the constraints in the input. The package of the template's module is `template`, and its
// libraries are below `libs`. The details only make violations with one message several: they may be large, and nothing uses them.
const hook = `package hooks

violation[found] {
  asked := input.constraints[_]
  seen := {"review": input.review, "parameters": asked.parameters}
  data.template.violation[result] with input as seen
  key := {"kind": asked.kind, "name": asked.name}
  found := {"key": key, "details": object.get(result, "details", {}), "msg": hook.message(result.msg)}
}
`

var hookModule = ast.MustParseModuleWithOpts(hook, ast.ParserOptions{RegoVersion: ast.RegoV0})

// compile compiles the code of a template in Rego with its libraries.
//
// Source: github.com/open-policy-agent/frameworks pkg/client/drivers/rego/compilers.go.
func compile(codes []templates.Code, capabilities *ast.Capabilities) (*ast.Compiler, error) {
	for _, code := range codes {
		if code.Engine != schema.Name {
			continue
		}
		source, err := schema.GetSource(code)
		if err != nil {
			return nil, err
		}
		modules, err := parse(source)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", clienterrors.ErrInvalidConstraintTemplate, err)
		}
		compiler := ast.NewCompiler().WithCapabilities(capabilities).WithStageAfterID(ast.StageRewriteEquals, sizesStage)
		if compiler.Compile(modules); compiler.Failed() {
			return nil, fmt.Errorf("%w: %w", clienterrors.ErrCompile, compiler.Errors)
		}
		return compiler, nil
	}
	return nil, fmt.Errorf("%w: it has no Rego", clienterrors.ErrInvalidConstraintTemplate)
}

// parse returns the modules of a template by a path of each. Its code may refer to its libraries and data.inventory, and
// to nothing else of the data.
func parse(source *schema.Source) (map[string]*ast.Module, error) {
	options := ast.ParserOptions{RegoVersion: ast.RegoV0}
	if source.Version == "v1" {
		options.RegoVersion = ast.RegoV1
	}
	rewriter, err := regorewriter.New(
		regorewriter.NewPackagePrefixer("libs"), []string{"data.lib"}, []string{"data.inventory"},
	)
	if err != nil {
		return nil, err
	}
	main, err := parseModule("template", source.Rego, options)
	if err != nil {
		return nil, err
	}
	main.Package.Path = ast.Ref{ast.DefaultRootDocument, ast.StringTerm("template")}
	if !declares(main, "violation") {
		return nil, fmt.Errorf("%w: missing required rules: [violation]", clienterrors.ErrInvalidModule)
	}
	rewriter.AddEntryPointModule("template", main)
	for index, text := range source.Libs {
		path := fmt.Sprintf(`libs["lib_%d"]`, index)
		library, err := parseModule(path, text, options)
		if err != nil {
			return nil, err
		}
		if err := rewriter.AddLib(path, library); err != nil {
			return nil, err
		}
	}
	rewritten, err := rewriter.Rewrite()
	if err != nil {
		return nil, err
	}
	modules := map[string]*ast.Module{"hooks": hookModule}
	for index, each := range append(rewritten.EntryPoints, rewritten.Libs...) {
		modules[fmt.Sprintf("template%d", index)] = each.Module
	}
	return modules, nil
}

func parseModule(path, text string, options ast.ParserOptions) (*ast.Module, error) {
	module, err := ast.ParseModuleWithOpts(path, text, options)
	if err == nil && module == nil {
		err = fmt.Errorf("%w: module %q is empty", clienterrors.ErrInvalidModule, path)
	}
	return module, err
}

func declares(module *ast.Module, name ast.Var) bool {
	for _, rule := range module.Rules {
		if rule.Head.Name == name {
			return true
		}
	}
	return false
}
