package main

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install" // into the scheme
	admissionvalidation "k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install" // into the scheme
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install" // into the scheme
	batchvalidation "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // into the scheme
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install" // into the scheme
	networkvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	psa "k8s.io/pod-security-admission/api"
	psapolicy "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// check says what a document is and what is wrong with it. If it makes a pod, that is returned, as it would
// be sent to the server.
func check(doc []byte) (what string, pod *corev1.Pod, err error) {
	var meta metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(doc, &meta); err != nil {
		return "a document", nil, err
	}
	what = meta.Kind + " " + meta.Name
	switch meta.Kind {
	case "Kustomization":
		return what, nil, nil // of kubectl, not of the server
	case "SecurityContextConstraints":
		return what, nil, nil // OpenShift's: test/container has its definition judge it, on a cluster
	case "Sandbox":
		pod, err = sandboxPod(doc)
	case "Pod":
		pod = &corev1.Pod{}
		err = yaml.UnmarshalStrict(doc, pod)
	case "Deployment":
		var d appsv1.Deployment
		if err = yaml.UnmarshalStrict(doc, &d); err == nil {
			pod, err = podOfTemplate(d.Name, d.Spec.Template), validate(doc)
		}
	case "Job":
		var j batchv1.Job
		if err = yaml.UnmarshalStrict(doc, &j); err == nil {
			pod, err = podOfTemplate(j.Name, j.Spec.Template), validate(doc)
		}
	default:
		return what, nil, validate(doc)
	}
	if err != nil {
		return what, nil, err
	}
	if pod.Spec.SecurityContext == nil {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{} // as the server does
	}
	data, err := yaml.Marshal(pod)
	if err != nil {
		return what, nil, err
	}
	return what, pod, validate(data)
}

// podOfTemplate is a pod that a controller would make.
func podOfTemplate(name string, t corev1.PodTemplateSpec) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: t.Labels, Annotations: t.Annotations},
		Spec:       t.Spec,
	}
}

// atLevel says what a level of Pod Security has against a pod, by the admission's own checks.
func atLevel(level string, pod *corev1.Pod) error {
	parsed, err := psa.ParseLevel(level)
	if err != nil {
		return err
	}
	evaluator, err := psapolicy.NewEvaluator(psapolicy.DefaultChecks())
	if err != nil {
		return err
	}
	results := evaluator.EvaluatePod(psa.LevelVersion{Level: parsed, Version: psa.LatestVersion()}, &pod.ObjectMeta, &pod.Spec)
	if r := psapolicy.AggregateCheckResults(results); !r.Allowed {
		return fmt.Errorf("violates %s: %s", level, strings.ReplaceAll(r.ForbiddenDetail(), "\n", " "))
	}
	return nil
}

// validate does what the server does with an object that is created.
func validate(doc []byte) error {
	codecs := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)
	versioned, _, err := codecs.UniversalDeserializer().Decode(doc, nil, nil)
	if err != nil {
		return err
	}
	legacyscheme.Scheme.Default(versioned)
	object, err := legacyscheme.Scheme.ConvertToVersion(versioned, runtime.InternalGroupVersioner)
	if err != nil {
		return err
	}
	if m, ok := object.(metav1.Object); ok && m.GetNamespace() == "" {
		m.SetNamespace(metav1.NamespaceDefault)
	}
	var errs field.ErrorList
	switch o := object.(type) {
	case *core.Pod:
		errs = corevalidation.ValidatePodCreate(o, corevalidation.PodValidationOptions{})
	case *core.ConfigMap:
		errs = corevalidation.ValidateConfigMap(o)
	case *core.Secret:
		errs = corevalidation.ValidateSecret(o)
	case *core.Service:
		if o.Spec.ClusterIP != "" && len(o.Spec.ClusterIPs) == 0 { // as the server does (pkg/registry/core/service)
			o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
		}
		errs = corevalidation.ValidateServiceCreate(o)
	case *core.ServiceAccount:
		errs = corevalidation.ValidateServiceAccount(o)
	case *core.PersistentVolumeClaim:
		errs = corevalidation.ValidatePersistentVolumeClaim(o, corevalidation.PersistentVolumeClaimSpecValidationOptions{})
	case *core.Namespace:
		o.SetNamespace("")
		errs = corevalidation.ValidateNamespace(o)
	case *apps.Deployment:
		errs = appsvalidation.ValidateDeployment(o, corevalidation.PodValidationOptions{})
	case *batch.Job:
		if o.Spec.Selector == nil { // the server makes one, of a label that it adds
			manual := true
			o.Spec.ManualSelector, o.Spec.Selector = &manual, &metav1.LabelSelector{MatchLabels: o.Spec.Template.Labels}
		}
		errs = batchvalidation.ValidateJob(o, batchvalidation.JobValidationOptions{})
	case *networking.NetworkPolicy:
		errs = networkvalidation.ValidateNetworkPolicy(o, networkvalidation.NetworkPolicyValidationOptions{})
	case *admissionregistration.ValidatingAdmissionPolicy:
		o.SetNamespace("")
		errs = admissionvalidation.ValidateValidatingAdmissionPolicy(o)
	case *admissionregistration.ValidatingAdmissionPolicyBinding:
		o.SetNamespace("")
		errs = admissionvalidation.ValidateValidatingAdmissionPolicyBinding(o)
	default:
		return fmt.Errorf("%T can't be checked", o)
	}
	return errs.ToAggregate()
}

// sandbox is what the versions v1alpha1 and v1beta1 of kubernetes-sigs/agent-sandbox have in common, but for
// the status.
type sandbox struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		PodTemplate struct {
			Metadata struct {
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
			Spec corev1.PodSpec `json:"spec"`
		} `json:"podTemplate"`
		VolumeClaimTemplates []struct {
			Metadata struct {
				Name        string            `json:"name"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
			Spec corev1.PersistentVolumeClaimSpec `json:"spec"`
		} `json:"volumeClaimTemplates"`
		ShutdownTime   *metav1.Time `json:"shutdownTime"`
		ShutdownPolicy string       `json:"shutdownPolicy"`
	} `json:"spec"`
}

// sandboxPod is the pod that the controller would make: each claim is a volume of its name.
func sandboxPod(doc []byte) (*corev1.Pod, error) {
	var s sandbox
	if err := yaml.UnmarshalStrict(doc, &s); err != nil {
		return nil, err
	}
	if v := s.APIVersion; v != "agents.x-k8s.io/v1alpha1" && v != "agents.x-k8s.io/v1beta1" {
		return nil, fmt.Errorf("unknown version %s", v)
	}
	if p := s.Spec.ShutdownPolicy; p != "" && p != "Delete" && p != "Retain" {
		return nil, fmt.Errorf("shutdownPolicy %s", p)
	}
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: s.Spec.PodTemplate.Metadata.Labels, Annotations: s.Spec.PodTemplate.Metadata.Annotations},
		Spec:       s.Spec.PodTemplate.Spec,
	}
	for _, c := range s.Spec.VolumeClaimTemplates {
		if len(c.Spec.AccessModes) == 0 || c.Spec.Resources.Requests.Storage().IsZero() {
			return nil, fmt.Errorf("claim %s: no access mode, or no size", c.Metadata.Name)
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: c.Metadata.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Metadata.Name + "-" + s.Name},
		}})
	}
	return pod, nil
}
