// Command kubecheck holds manifests to what a Kubernetes API server would accept: they are decoded strictly,
// filled with defaults, and validated by Kubernetes' own code. It needs no cluster.
//
//	kubecheck FILE…                  is each document valid?
//	kubecheck -admit POLICY FILE…    and does the ValidatingAdmissionPolicy of that file let it in?
//	kubecheck -admit POLICY -was OLD FILE   in the place of the pod of OLD?
//	kubecheck -level LEVEL FILE…     and is every pod as that level of Pod Security wants it?
//
// It is a module of its own: what it is made of has no place in agent-init's.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	admit := flag.String("admit", "", "ask the ValidatingAdmissionPolicy in `FILE` too")
	was := flag.String("was", "", "the pod of `FILE` is what is changed")
	level := flag.String("level", "", "hold pods to `LEVEL` of Pod Security too")
	flag.Parse()
	if err := run(*admit, *was, *level, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(admit, was, level string, files []string) error {
	var gate *admission
	if admit != "" {
		docs, err := documents(admit)
		if err != nil {
			return err
		}
		if gate, err = newAdmission(docs[0]); err != nil {
			return fmt.Errorf("%s: %w", admit, err)
		}
	}
	old, err := podOf(was)
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		docs, err := documents(file)
		if err != nil {
			errs = append(errs, err)
		}
		for _, doc := range docs {
			what, pod, err := check(doc)
			if gate != nil && pod != nil {
				err = errors.Join(err, gate.judge(pod, old))
			}
			if level != "" && pod != nil {
				err = errors.Join(err, atLevel(level, pod))
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", file, what, err))
				continue
			}
			fmt.Printf("%s: %s: ok\n", file, what)
		}
	}
	return errors.Join(errs...)
}

// podOf is the pod of a file, nil if none is named.
func podOf(file string) (*corev1.Pod, error) {
	if file == "" {
		return nil, nil
	}
	docs, err := documents(file)
	if err != nil {
		return nil, err
	}
	_, pod, err := check(docs[0])
	if err == nil && pod == nil {
		err = errors.New("no pod")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return pod, nil
}

// documents are the YAML documents of a file.
func documents(file string) ([][]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		doc, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(bytes.TrimSpace(doc)) > 0 {
			out = append(out, doc)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no documents", file)
	}
	return out, nil
}
