//! Sample policies, to read and to run: `cargo run --release --bin samples`.

mod misbehaving;
mod mutating;
mod pods;
mod validating;

use admission_gateway_worker::{Policy, Server};

fn main() {
    Server::new()
        .policy("require-labels", "Every object names its team in a label.", validating::require_labels)
        .policy(
            "deny-latest-tag",
            "Images are named by a digest or by a tag other than latest.",
            validating::deny_latest_tag,
        )
        .policy(
            "deny-privileged",
            "Pods do not run privileged and do not share the node's namespaces.",
            validating::deny_privileged,
        )
        .mutating_policy(
            "always-pull-images",
            "Images are pulled at every start, so that a cached private image is not free for all on its node.",
            mutating::always_pull_images,
        )
        .mutating_policy(
            "inject-sidecar",
            "Pods get a container that ships their logs.",
            mutating::inject_sidecar,
        )
        .mutating_policy(
            "default-resources",
            "Containers that ask for no CPU or memory get a small request.",
            mutating::default_resources,
        )
        .policy(
            "warn-no-memory-limit",
            "Containers without a memory limit are let through with a warning.",
            validating::warn_no_memory_limit,
        )
        .policy(
            "protect-busy",
            "Objects with the annotation samples.example/busy are not deleted; the client may try again later.",
            validating::protect_busy,
        )
        .mutating_policy(
            "team-from-namespace",
            "Objects without a team label get that of their Namespace.",
            mutating::team_from_namespace,
        )
        .register(
            Policy::new("limit-replicas", "Objects have at most max replicas.", validating::limit_replicas)
                .parameters(validating::replicas_schema(), validating::max_replicas),
        )
        .policy(
            "sleeps",
            "Answers too late for anyone: after a minute, or when it is cancelled.",
            misbehaving::sleeps,
        )
        .policy("fails", "Has a bug that shows on every review.", misbehaving::fails)
        .main()
}
