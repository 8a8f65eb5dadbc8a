package main

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// admission is a ValidatingAdmissionPolicy, in the server's own dialect of CEL.
type admission struct {
	policy admissionv1.ValidatingAdmissionPolicy
	env    *cel.Env
}

func newAdmission(doc []byte) (*admission, error) {
	var a admission
	if err := yaml.UnmarshalStrict(doc, &a.policy); err != nil {
		return nil, err
	}
	// The oldest version that has such policies as stable.
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, 30), true).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 30),
		EnvOptions:        []cel.EnvOption{cel.Variable("object", cel.DynType), cel.Variable("variables", cel.DynType)},
	})
	if err != nil {
		return nil, err
	}
	a.env, err = set.Env(environment.NewExpressions)
	return &a, err
}

// judge says why pod is refused, which takes the place of old, or is created if there
// is none. A selector is held against both (admissionregistration.k8s.io/v1, objectSelector).
func (a *admission) judge(pod, old *corev1.Pod) error {
	for k, v := range a.policy.Spec.MatchConstraints.ObjectSelector.MatchLabels {
		if pod.Labels[k] != v && (old == nil || old.Labels[k] != v) {
			return fmt.Errorf("not asked: the pod has no label %s: %s", k, v)
		}
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return err
	}
	variables := map[string]any{}
	in := map[string]any{"object": object, "variables": variables}
	for _, v := range a.policy.Spec.Variables {
		if variables[v.Name], err = a.eval(v.Expression, in); err != nil {
			return err
		}
	}
	var errs []error
	for _, v := range a.policy.Spec.Validations {
		ok, err := a.eval(v.Expression, in)
		if err != nil {
			errs = append(errs, err)
		} else if ok != true {
			errs = append(errs, errors.New("refused: "+v.Message))
		}
	}
	return errors.Join(errs...)
}

func (a *admission) eval(expression string, in map[string]any) (any, error) {
	ast, issues := a.env.Compile(expression)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", expression, err)
	}
	program, err := a.env.Program(ast)
	if err != nil {
		return nil, err
	}
	out, _, err := program.Eval(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expression, err)
	}
	return out.Value(), nil
}
