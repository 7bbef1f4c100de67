//! Kubernetes' own types: reading an object as one, and writing it back.

use admission_gateway_worker::{Result, Review, json};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

fn review() -> Review {
    Review::from_json(&json!({"operation": "CREATE", "object": {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"team": "a"}, "new-in-1.99": {"a": 1.0}},
        "spec": {
            "containers": [
                {"name": "app", "image": "app:1", "futureField": 9007199254740993_u64},
                {"name": "side", "image": "side:1", "ports": [{"containerPort": 80, "x": true}]},
            ],
            "tuning": ["unknown"],
        },
    }}))
}

#[test]
fn a_typed_change_is_that_change_and_no_other() -> Result {
    let mut review = review();
    let mut pod: Pod = review.object_as()?.expect("a Pod");
    let spec = pod.spec.as_mut().expect("a spec");
    spec.containers[0].image_pull_policy = Some("Always".to_owned());
    let limits = &mut spec.containers[1].resources.get_or_insert_default().limits;
    limits.get_or_insert_default().insert("memory".to_owned(), Quantity("64Mi".to_owned()));
    pod.metadata.labels.as_mut().expect("labels").remove("team");
    review.set_object_as(&pod)?;
    assert_eq!(
        review.changes()?,
        [
            json!({"op": "remove", "path": "/metadata/labels/team"}),
            json!({"op": "add", "path": "/spec/containers/0/imagePullPolicy", "value": "Always"}),
            json!({"op": "add", "path": "/spec/containers/1/resources", "value": {"limits": {"memory": "64Mi"}}}),
        ]
    );
    Ok(())
}

#[test]
fn writing_it_back_unchanged_changes_nothing() -> Result {
    let mut review = review();
    let pod: Pod = review.object_as()?.expect("a Pod");
    review.set_object_as(&pod)?;
    assert!(review.changes()?.is_empty());
    Ok(())
}

#[test]
fn a_container_more_leaves_the_others_as_they_are() -> Result {
    let mut review = review();
    let mut pod: Pod = review.object_as()?.expect("a Pod");
    let added = Container { name: "log".to_owned(), ..Default::default() };
    pod.spec.as_mut().expect("a spec").containers.push(added);
    review.set_object_as(&pod)?;
    let patch = review.changes()?;
    assert_eq!(patch, [json!({"op": "add", "path": "/spec/containers/2", "value": {"name": "log"}})]);
    Ok(())
}

#[test]
fn what_is_not_of_that_type_is_a_failure_that_says_so() {
    let review = Review::from_json(&json!({"object": {"spec": {"containers": "none"}}}));
    let problem = review.object_as::<Pod>().expect_err("no Pod").to_string();
    assert!(problem.starts_with("the object is no Pod: "), "{problem}");
    let deletion = Review::from_json(&json!({"object": null}));
    assert!(deletion.object_as::<Pod>().expect("no failure").is_none());
}
