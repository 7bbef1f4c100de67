// Agnhost is Kubernetes' own example of a webhook server, as its end-to-end tests run it: the subcommand
// "webhook" of the image agnhost, unchanged. The other subcommands are left out; they need modules that the
// API server does not, and so pins beside its own.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/test/images/agnhost/webhook"
)

func main() {
	root := &cobra.Command{Use: "agnhost"}
	root.AddCommand(webhook.CmdWebhook)
	os.Exit(cli.Run(root))
}
