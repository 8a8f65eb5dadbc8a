package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/agent-init/agent-init/internal/lab/golden"
)

// TestFaults holds every error that this program can end with, or refuse with, as
// a set: its exit code, its cause and its remedy, as they stand in the source.
// They are read together in testdata/faults.golden.txt.
func TestFaults(t *testing.T) {
	fset := token.NewFileSet()
	var all []string
	for _, name := range programSources(t) {
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !makesFault(file.Name.Name, call) {
				return true
			}
			code, remedy, cause := source(t, fset, call.Args[0]), source(t, fset, call.Args[1]), source(t, fset, call.Args[2])
			if kind := strings.TrimPrefix(code, "fault."); kind != code || file.Name.Name == "fault" && ast.IsExported(code) {
				code = "exit" + kind
			}
			all = append(all, fmt.Sprintf("%-14s %s\n%-14s   remedy: %s", code, cause, "", remedy))
			at := fset.Position(call.Pos())
			judgeFault(t, fmt.Sprintf("%s:%d", name, at.Line), cause, remedy, call.Args[1])
			return true
		})
	}
	slices.Sort(all)
	golden.File(t, "faults.golden.txt", []byte(strings.Join(slices.Compact(all), "\n")+"\n"))
}

// makesFault says whether a call makes a fault, or refuses with one.
func makesFault(pkg string, call *ast.CallExpr) bool {
	if len(call.Args) < 3 {
		return false
	}
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return pkg == "fault" && f.Name == "New"
	case *ast.SelectorExpr:
		of, ok := f.X.(*ast.Ident)
		return ok && (of.Name == "fault" && f.Sel.Name == "New" || of.Name == "ask" && f.Sel.Name == "Refuse")
	}
	return false
}

// programSources are the files that the program is made of, but for what it is built on.
func programSources(t *testing.T) (files []string) {
	t.Helper()
	for _, dir := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err == nil && d.IsDir() && slices.Contains(testOnly, d.Name()):
				return fs.SkipDir
			case err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// judgeFault holds an error to: one line of cause, in lower case and without a
// full stop, and one of remedy.
func judgeFault(t *testing.T, at, cause, remedy string, remedyExpr ast.Expr) {
	t.Helper()
	switch remedyExpr.(type) {
	case *ast.Ident, *ast.SelectorExpr: // a name, of words that stand elsewhere
		remedy = ""
	}
	for what, s := range map[string]string{"cause": cause, "remedy": remedy} {
		if strings.HasSuffix(s, ".") && !strings.HasSuffix(s, "…") {
			t.Errorf("%s: the %s ends with a full stop: %s", at, what, s)
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(s, "%"), " ")
		if r := []rune(first); len(r) > 1 && unicode.IsUpper(r[0]) && unicode.IsLower(r[1]) && !strings.Contains(first, "(") {
			t.Errorf("%s: the %s begins like a sentence: %s", at, what, s)
		}
		if n := words(s); n > errorWords {
			t.Errorf("%s: the %s has %d words: %s", at, what, n, s)
		}
	}
	if head, rest, more := strings.Cut(cause, `\n`); more && (rest != "%w" || head == "") {
		t.Errorf("%s: the cause has several lines: %s", at, cause)
	}
	if lit, ok := remedyExpr.(*ast.BasicLit); ok && lit.Value == `""` {
		t.Errorf("%s: no remedy for: %s", at, cause)
	}
}

// source is an expression as it is written; of a text, without its quotes.
func source(t *testing.T, fset *token.FileSet, e ast.Expr) string {
	t.Helper()
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		s, err := strconv.Unquote(lit.Value)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(s, "\n", `\n`)
	}
	begin, end := fset.Position(e.Pos()), fset.Position(e.End())
	data, err := os.ReadFile(begin.Filename)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(data[begin.Offset:end.Offset])), " ")
}
