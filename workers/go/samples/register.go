package samples

import "admission-gateway.io/worker"

// Register adds all of them to a server.
func Register(server *worker.Server) {
	server.Policy("require-labels", "Every object names its team in a label.", RequireLabels)
	server.Policy("deny-latest-tag", "Images are named by a digest or by a tag other than latest.", DenyLatestTag)
	server.Policy(
		"deny-privileged", "Pods do not run privileged and do not share the node's namespaces.", DenyPrivileged,
	)
	server.MutatingPolicy(
		"always-pull-images",
		"Images are pulled at every start, so that a cached private image is not free for all on its node.",
		AlwaysPullImages,
	)
	server.MutatingPolicy("inject-sidecar", "Pods get a container that ships their logs.", InjectSidecar)
	server.MutatingPolicy(
		"default-resources", "Containers that ask for no CPU or memory get a small request.", DefaultResources,
	)
	server.Policy(
		"warn-no-memory-limit", "Containers without a memory limit are let through with a warning.", WarnNoMemoryLimit,
	)
	server.Policy(
		"protect-busy",
		"Objects with the annotation samples.example/busy are not deleted; the client may try again later.",
		ProtectBusy,
	)
	server.MutatingPolicy(
		"team-from-namespace", "Objects without a team label get that of their Namespace.", TeamFromNamespace,
	)
	server.Policy(
		"limit-replicas", "Objects have at most max replicas.", LimitReplicas,
		worker.WithParameters(replicasSchema, maxReplicas),
	)
	server.Policy("sleeps", "Answers too late for anyone: after a minute, or when it is cancelled.", Sleeps)
	server.Policy("fails", "Has a bug that shows on every review.", Fails)
}
