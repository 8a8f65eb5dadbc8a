// Command kubeone is every program of a one-node Kubernetes cluster, made of Kubernetes' and etcd's own code:
//
//	kubeone PROGRAM [FLAG…]
//
// or a link to it that is named like the program. It is a module of its own: what it is made of has no place in
// agent-init's.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	programs := map[string]func(){
		"etcd": func() { etcdmain.Main(os.Args) },
		"kubectl": func() {
			if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
				util.CheckErr(err)
			}
		},
		// The command is made when it is asked for: its making registers flags and feature gates that are global.
		"kube-apiserver":          func() { run(apiserver.NewAPIServerCommand()) },
		"kube-controller-manager": func() { run(manager.NewControllerManagerCommand()) },
		"kube-proxy":              func() { run(proxy.NewProxyCommand()) },
		"kube-scheduler":          func() { run(scheduler.NewSchedulerCommand()) },
		"kubelet":                 func() { run(kubelet.NewKubeletCommand(context.Background())) },
	}
	program := programs[filepath.Base(os.Args[0])]
	if program == nil && len(os.Args) > 1 {
		program = programs[os.Args[1]]
		os.Args = os.Args[1:]
	}
	if program == nil {
		fmt.Fprintln(os.Stderr, "usage: kubeone", strings.Join(slices.Sorted(maps.Keys(programs)), "|"), "[FLAG…]")
		os.Exit(64)
	}
	program()
}

func run(c *cobra.Command) { os.Exit(cli.Run(c)) }
