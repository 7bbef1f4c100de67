//! ReviewStream over a real connection.

use std::sync::Arc;
use std::time::Duration;

use admission_gateway_worker::{Policy, Result, Review, json};
use tokio::sync::Semaphore;

use crate::gateway::pb::ReviewBatch;
use crate::gateway::{Conversation, batch, call, cancel, client_to, error_of, response_of};
use crate::policies::{Count, LONG, policies, request, serve, wait_for, watched};

#[tokio::test]
async fn the_calls_of_a_batch_are_answered_in_order() {
    let serving = serve(policies()).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    let names = ["allows", "denies", "labels", "tries-to-label", "labels"];
    let calls = names.iter().enumerate().map(|(id, name)| call(id as u64, name, LONG)).collect();
    stream.send(batch(&request(), calls));
    // By one message, unless the machine is so busy that its time runs out.
    let mut found = Vec::new();
    while found.len() < 5 {
        found.extend(stream.next().await.expect("no failure").expect("a message").verdicts);
    }
    assert_eq!(found.iter().map(|verdict| verdict.id).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(response_of(&found[0]).allowed);
    let status = response_of(&found[1]).status.as_ref().expect("a status");
    assert_eq!((status.code, status.message.as_str()), (403, "not web"));
    // Each call has its own copy: the second of the same policy has something to add too.
    for position in [2, 4] {
        let patch = String::from_utf8_lossy(&response_of(&found[position]).patch);
        assert_eq!(patch, r#"[{"op":"add","path":"/metadata/labels/seen","value":"yes"}]"#);
    }
    assert!(response_of(&found[3]).patch.is_empty());
    serving.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn calls_that_cannot_be_run_are_told_why() {
    let serving = serve(policies()).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    let mut elsewhere = call(u64::MAX, "allows", LONG);
    elsewhere.payload = 3;
    stream.send(batch(&request(), vec![call(1, "x", LONG), call(2, "allows", 0), elsewhere]));
    let mut garbage = batch(&json!(null), vec![call(3, "denies", LONG), call(4, "allows", LONG)]);
    garbage.payloads[0].admission_request = b"{\"object\":".to_vec();
    stream.send(garbage);
    stream.send(batch(&json!([1]), vec![call(5, "denies", LONG)]));
    let found = stream.verdicts(6).await;
    let unknown =
        "policy \"x\" is not served here; served are: allows, denies, forever, labels, tries-to-label";
    assert_eq!(error_of(&found[0]), (5, unknown));
    assert_eq!(error_of(&found[1]), (4, "the deadline passed before the policy answered"));
    let (code, text) = error_of(&found[2]);
    assert_eq!(code, 3);
    assert!(text.starts_with("admission_request is not JSON: EOF"), "{text}");
    assert!(response_of(&found[3]).allowed, "who does not look does not mind");
    assert_eq!(error_of(&found[4]), (3, "admission_request is to be a JSON object, found array"));
    assert_eq!(found[5].id, u64::MAX);
    assert_eq!(error_of(&found[5]), (3, "the call is for payload 3, the batch has 1"));
    serving.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_policy_that_waits_or_blocks_holds_up_no_other() {
    let (entered, left) = (Arc::new(Semaphore::new(0)), Arc::new(std::sync::Barrier::new(2)));
    let (tell, leave) = (entered.clone(), left.clone());
    let blocks = move |_: &mut Review| {
        tell.add_permits(1);
        leave.wait();
    };
    let serving = serve(policies().register(Policy::new("blocks", "", blocks).blocking())).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    stream.send(batch(&request(), vec![call(1, "forever", LONG), call(2, "blocks", LONG)]));
    entered.acquire().await.expect("open").forget();
    for id in 3..10 {
        stream.send(batch(&request(), vec![call(id, "allows", LONG)]));
        assert_eq!(stream.verdicts(1).await[0].id, id);
    }
    left.wait();
    assert_eq!(stream.verdicts(1).await[0].id, 2);
    assert_eq!(serving.stop(Duration::ZERO).await, 0);
}

#[tokio::test]
async fn a_plain_policy_that_keeps_blocking_moves_to_a_thread() {
    let left = Arc::new(Semaphore::new(0));
    let leave = left.clone();
    let blocks = move |review: &mut Review| -> Result {
        if review.name()? == "slow" {
            std::thread::sleep(Duration::from_millis(10));
        } else {
            while leave.try_acquire().is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    };
    let serving = serve(policies().policy("blocks", "", blocks)).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    for id in 0..2 {
        stream.send(batch(&json!({"name": "slow"}), vec![call(id, "blocks", LONG)]));
        stream.verdicts(1).await;
    }
    stream.send(batch(&request(), vec![call(2, "blocks", LONG), call(3, "allows", LONG)]));
    assert_eq!(stream.verdicts(1).await[0].id, 3);
    left.add_permits(1);
    assert_eq!(stream.verdicts(1).await[0].id, 2);
    serving.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn an_id_in_flight_that_is_used_again_ends_that_stream_only() {
    let count = Count::default();
    let serving = serve(watched(&count)).await;
    let mut client = client_to(&serving).await;
    let (mut stream, mut other) =
        (Conversation::open(&mut client).await, Conversation::open(&mut client).await);
    stream.send(batch(&request(), vec![call(7, "watched", LONG), call(8, "allows", LONG)]));
    assert_eq!(stream.verdicts(1).await[0].id, 8);
    stream.send(batch(&request(), vec![call(9, "allows", LONG), call(7, "allows", LONG)]));
    let status = stream.next().await.expect_err("the end");
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert_eq!(status.message(), "call id 7 is used again while its call is in flight");
    wait_for(&count, 1).await;
    other.send(batch(&request(), vec![call(7, "allows", LONG)]));
    other.verdicts(1).await;
    serving.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn too_many_calls_in_flight_are_refused() {
    let serving = serve(policies()).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    let calls = (0..4098).map(|id| call(id, "forever", LONG)).collect();
    stream.send(batch(&request(), calls));
    for verdict in stream.verdicts(2).await {
        assert!(verdict.id >= 4096);
        assert_eq!(error_of(&verdict), (8, "4096 calls of this stream are in flight"));
    }
    serving.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn verdicts_too_large_for_one_message_go_in_several() {
    fn grows(review: &mut Review) -> Result {
        review.object_mut()?["big"] = "x".repeat(3 * 1024 * 1024).into();
        Ok(())
    }
    let serving = serve(policies().mutating_policy("grows", "", grows)).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    // More than all windows together: nothing is read until the gateway takes what is there.
    for first in [0, 5] {
        stream.send(batch(&request(), (first..first + 5).map(|id| call(id, "grows", LONG)).collect()));
    }
    let mut found = Vec::new();
    while found.len() < 10 {
        let message = stream.next().await.expect("no failure").expect("not the end");
        assert!(message.verdicts.len() <= 2);
        found.extend(message.verdicts.into_iter().map(|verdict| verdict.id));
    }
    found.sort_unstable();
    assert_eq!(found, (0..10).collect::<Vec<_>>());
    serving.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_batch_over_the_limit_ends_that_stream_only() {
    let serving = serve(policies()).await;
    let mut client = client_to(&serving).await;
    let mut stream = Conversation::open(&mut client).await;
    let mut large = batch(&request(), vec![call(1, "allows", LONG)]);
    large.payloads[0].namespace_object = vec![b' '; 8 * 1024 * 1024];
    stream.send(large);
    let status = stream.next().await.expect_err("the end");
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    let mut other = Conversation::open(&mut client).await;
    let mut fits = batch(&request(), vec![call(1, "allows", LONG)]);
    fits.payloads[0].namespace_object = vec![b' '; 8 * 1024 * 1024 - 1024];
    other.send(fits);
    other.verdicts(1).await;
    serving.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_batch_of_nothing_is_no_call() {
    let serving = serve(policies()).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    stream.send(ReviewBatch::default());
    stream.send(cancel(&[1, 2, 3]));
    stream.half_close();
    assert_eq!(stream.next().await.expect("no failure"), None);
    serving.stop(Duration::ZERO).await;
}
