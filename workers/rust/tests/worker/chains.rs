//! Calls that are evaluated on the object that an earlier call of their batch leaves.

use std::sync::Arc;

use admission_gateway_worker::{Denied, PolicyError, Result, Review, Server, Value, json};
use tokio::sync::Semaphore;

use crate::gateway::{Conversation, batch, call, call_after, cancel, client_to, error_of, response_of};
use crate::policies::{Count, LONG, policies, request, serve, wait_for, waits, watched};

/// Warns with the request that the policy gets, and extends the list in the object.
fn extend(review: &mut Review, by: &str) -> Result {
    let request = review.request()?;
    assert_eq!(review.object()?, &request["object"]);
    assert_eq!(review.old_object()?, &request["oldObject"]);
    assert_eq!(review.object_as::<Value>()?.as_ref(), Some(&request["object"]));
    review.warn(Value::from(request.clone()).to_string());
    let list = review.object_mut()?["list"].as_array_mut().expect("a list");
    list.push(json!({"by": by, "fraction": 1.0, "large": u64::MAX}));
    Ok(())
}

fn inline(review: &mut Review) -> Result {
    extend(review, "inline")
}

async fn task(review: &mut Review) -> Result {
    tokio::task::yield_now().await;
    extend(review, "task")
}

fn explicit(review: &mut Review) -> Result {
    extend(review, "overruled")?;
    review.set_patch(vec![
        json!({"op": "add", "path": "/list/0", "value": {"by": "explicit"}}),
        json!({"op": "copy", "from": "/list/0", "path": "/last"}),
    ]);
    Ok(())
}

fn broken(review: &mut Review) -> Result {
    extend(review, "broken")?;
    review.set_patch(vec![json!({"op": "remove", "path": "/list"}), json!({"op": "remove", "path": "/x"})]);
    Ok(())
}

fn denied(review: &mut Review) -> Result {
    extend(review, "denied")?;
    Err(Denied::new("no").into())
}

async fn failed(review: &mut Review) -> Result {
    extend(review, "failed")?;
    tokio::task::yield_now().await;
    Err(PolicyError::failed("broken"))
}

fn chainable() -> Server {
    policies()
        .mutating_policy("inline", "", inline)
        .mutating_policy("task", "", task)
        .register(admission_gateway_worker::Policy::new("thread", "", inline).mutating().blocking())
        .mutating_policy("explicit", "", explicit)
        .mutating_policy("broken", "", broken)
        .mutating_policy("denied", "", denied)
        .mutating_policy("failed", "", failed)
        .policy("validating", "", inline)
}

const CHAINABLE: [&str; 8] =
    ["inline", "task", "thread", "explicit", "broken", "denied", "failed", "validating"];

/// What one of these leaves of an object.
fn model(policy: &str, mut object: Value) -> Value {
    let by = if policy == "thread" { "inline" } else { policy };
    let list = object["list"].as_array_mut().expect("a list");
    match policy {
        "inline" | "task" | "thread" => list.push(json!({"by": by, "fraction": 1.0, "large": u64::MAX})),
        "explicit" => {
            list.insert(0, json!({"by": "explicit"}));
            object["last"] = json!({"by": "explicit"});
        }
        _ => {}
    }
    object
}

#[tokio::test]
async fn each_call_gets_the_object_that_the_call_before_it_leaves() {
    let serving = serve(chainable()).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    let mut random = 1_u64;
    let mut below = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % limit
    };
    for _ in 0..200 {
        let mut calls = Vec::new();
        // By id, and 0 for the object that is sent.
        let mut objects = vec![json!({"list": [0.5], "name": "web"})];
        let mut wanted = Vec::new();
        let about =
            json!({"name": "web", "oldObject": {"list": []}, "operation": "UPDATE", "object": objects[0]});
        for id in 1..=1 + below(12) {
            let policy = CHAINABLE[usize::try_from(below(8)).expect("small")];
            let after = below(id);
            let object = objects[usize::try_from(after).expect("small")].clone();
            let mut seen = about.clone();
            seen["object"] = object.clone();
            wanted.push((policy, seen.to_string()));
            objects.push(model(policy, object));
            calls.push(call_after(after, id, policy));
        }
        let afters: Vec<_> = calls.iter().map(|call| call.after).collect();
        stream.send(batch(&about, calls));
        for (verdict, (after, (policy, seen))) in
            stream.verdicts(wanted.len()).await.iter().zip(afters.into_iter().zip(&wanted))
        {
            assert_eq!(verdict.chained, after != 0);
            if *policy == "failed" {
                assert_eq!(error_of(verdict), (13, "broken"));
            } else {
                assert_eq!(response_of(verdict).warnings, [seen.as_str()], "{policy}");
            }
        }
    }
    serving.stop(std::time::Duration::ZERO).await;
}

#[tokio::test]
async fn a_verdict_does_not_wait_for_the_end_of_its_chain() {
    let go = Arc::new(Semaphore::new(0));
    let serving = serve(policies().register(waits(&go))).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    let calls = vec![call(1, "labels", LONG), call_after(1, 2, "waits"), call_after(2, 3, "labels")];
    stream.send(batch(&request(), calls));
    assert!(!response_of(&stream.verdicts(1).await[0]).patch.is_empty());
    stream.half_close();
    go.add_permits(1);
    let found = stream.verdicts(2).await;
    assert_eq!(response_of(&found[0]).warnings, ["waited"]);
    assert!(response_of(&found[1]).patch.is_empty(), "the label is there already");
    assert_eq!(stream.next().await.expect("no failure"), None);
    serving.stop(std::time::Duration::ZERO).await;
}

#[tokio::test]
async fn a_cancelled_call_cancels_those_after_it_and_no_other() {
    let count = Count::default();
    let go = Arc::new(Semaphore::new(0));
    let serving = serve(watched(&count).register(waits(&go))).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    let calls = vec![
        call(1, "watched", LONG),
        call_after(1, 2, "allows"),
        call_after(2, 3, "allows"),
        call(4, "waits", LONG),
        call_after(4, 5, "denies"),
        call_after(5, 6, "denies"),
        call_after(4, 7, "allows"),
    ];
    stream.send(batch(&request(), calls));
    stream.send(cancel(&[1, 5]));
    wait_for(&count, 1).await;
    // The ids are free, and a call with one of them is not after the call that is still in flight.
    stream.send(batch(&request(), [2, 3, 5, 6].map(|id| call(id, "allows", LONG)).to_vec()));
    assert_eq!(stream.verdicts(4).await.len(), 4);
    go.add_permits(1);
    assert_eq!(stream.verdicts(2).await.iter().map(|verdict| verdict.id).collect::<Vec<_>>(), [4, 7]);
    let mut at_once = batch(&request(), vec![call(8, "allows", LONG), call_after(8, 9, "allows")]);
    at_once.cancelled = vec![8];
    stream.send(at_once);
    stream.half_close();
    assert_eq!(stream.next().await.expect("no failure"), None);
    serving.stop(std::time::Duration::ZERO).await;
}

#[tokio::test]
async fn a_call_after_no_earlier_call_of_its_payload_is_refused() {
    let serving = serve(policies()).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    stream.send(batch(&request(), vec![call(1, "forever", LONG)]));
    let mut found = batch(
        &request(),
        vec![
            call_after(1, 2, "allows"),
            call_after(3, 3, "allows"),
            call_after(5, 4, "allows"),
            call(5, "allows", LONG),
            call_after(5, 6, "allows"),
            call_after(5, 7, "allows"),
        ],
    );
    found.payloads.push(found.payloads[0].clone());
    found.calls[4].payload = 1;
    stream.send(found);
    for verdict in stream.verdicts(6).await {
        if [5, 7].contains(&verdict.id) {
            assert!(response_of(&verdict).allowed);
        } else {
            let before = if verdict.id < 4 { [1, 3][verdict.id as usize - 2] } else { 5 };
            let text = format!("no earlier call of the batch has the id {before} and the same payload");
            assert_eq!(error_of(&verdict), (3, text.as_str()));
        }
    }
    serving.stop(std::time::Duration::ZERO).await;
}
