package io.admissiongateway.samples;

import io.admissiongateway.worker.Parameters;
import io.admissiongateway.worker.PolicyServer;

/** Sample policies, to read and to run: {@code java -jar target/admission-gateway-samples.jar}. */
public final class Samples {
    private Samples() {}

    /** Returns a server with all of them. */
    public static PolicyServer server() {
        return new PolicyServer()
                .policy(
                        "require-labels",
                        "Every object names its team in a label.",
                        Validating::requireLabels)
                .policy(
                        "deny-latest-tag",
                        "Images are named by a digest or by a tag other than latest.",
                        Validating::denyLatestTag)
                .policy(
                        "deny-privileged",
                        "Pods do not run privileged and do not share the node's namespaces.",
                        Validating::denyPrivileged)
                .mutating(
                        "always-pull-images",
                        "Images are pulled at every start, so that a cached private image is not free for all on its"
                                + " node.",
                        Mutating::alwaysPullImages)
                .mutating(
                        "inject-sidecar",
                        "Pods get a container that ships their logs.",
                        Mutating::injectSidecar)
                .mutating(
                        "default-resources",
                        "Containers that ask for no CPU or memory get a small request.",
                        Mutating::defaultResources)
                .policy(
                        "warn-no-memory-limit",
                        "Containers without a memory limit are let through with a warning.",
                        Validating::warnNoMemoryLimit)
                .policy(
                        "protect-busy",
                        "Objects with the annotation samples.example/busy are not deleted; the client may try again"
                                + " later.",
                        Validating::protectBusy)
                .mutating(
                        "team-from-namespace",
                        "Objects without a team label get that of their Namespace.",
                        Mutating::teamFromNamespace)
                .policy(
                        "limit-replicas",
                        "Objects have at most max replicas.",
                        Parameters.of(Validating.REPLICAS_SCHEMA, Validating::maxReplicas),
                        Validating::limitReplicas)
                .policy(
                        "sleeps",
                        "Answers too late for anyone: after a minute, or when it is cancelled.",
                        Misbehaving::sleeps)
                .policy("fails", "Has a bug that shows on every review.", Misbehaving::fails);
    }

    /** Serves them; {@code --help} says where. */
    public static void main(String[] args) {
        server().main(args);
    }
}
