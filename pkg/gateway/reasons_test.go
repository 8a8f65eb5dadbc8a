package gateway

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// Each refusal has words of its own: people know it by them.
func TestRefusalWords(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reasons.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			words := spec.Values[0].(*ast.UnaryExpr).X.(*ast.CompositeLit).Elts[0].(*ast.BasicLit).Value
			if other, twice := seen[words]; words == `""` || twice {
				t.Errorf("%s has the words %s, as has %s", spec.Names[0], words, other)
			}
			seen[words] = spec.Names[0].Name
		}
		return true
	})
	if len(seen) < 40 {
		t.Errorf("there are only %d", len(seen))
	}
}
