//! How calls and streams end before their time, and how a server does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use admission_gateway_worker::{Result, Review};
use tokio::sync::Semaphore;

use crate::gateway::{Conversation, batch, call, cancel, client_to, error_of, response_of};
use crate::policies::{Count, LONG, policies, request, serve, wait_for, waits, watched};

#[tokio::test]
async fn a_cancelled_call_is_dropped_and_gets_no_verdict() {
    let count = Count::default();
    let serving = serve(watched(&count)).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    stream.send(batch(&request(), vec![call(1, "watched", LONG), call(2, "watched", LONG)]));
    // Not in flight, so nobody's; and one that is cancelled where it comes is not run.
    let mut both = batch(&request(), vec![call(3, "watched", LONG), call(4, "allows", LONG)]);
    both.cancelled = vec![1, 3, 99];
    stream.send(both);
    wait_for(&count, 1).await;
    // The id is free again.
    stream.send(batch(&request(), vec![call(1, "allows", LONG)]));
    let found: Vec<_> = stream.verdicts(2).await.iter().map(|verdict| verdict.id).collect();
    assert_eq!(found, [1, 4]);
    stream.send(cancel(&[2]));
    wait_for(&count, 2).await;
    stream.half_close();
    assert_eq!(stream.next().await.expect("no failure"), None);
    serving.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_call_past_its_deadline_is_dropped_and_says_so() {
    let count = Count::default();
    let serving = serve(watched(&count)).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    let started = Instant::now();
    stream.send(batch(&request(), vec![call(1, "watched", 80), call(2, "watched", LONG)]));
    let found = stream.verdicts(1).await;
    assert!(started.elapsed() >= Duration::from_millis(80));
    assert_eq!(found[0].id, 1);
    assert_eq!(error_of(&found[0]), (4, "the deadline passed before the policy answered"));
    wait_for(&count, 1).await;
    serving.stop(Duration::ZERO).await;
    wait_for(&count, 2).await;
}

#[tokio::test]
async fn everything_is_dropped_with_the_stream_and_with_the_connection() {
    let count = Count::default();
    let serving = serve(watched(&count)).await;
    let mut client = client_to(&serving).await;
    for dropped in 1..=2 {
        let mut stream = Conversation::open(&mut client).await;
        stream.send(batch(&request(), vec![call(1, "watched", LONG), call(2, "allows", LONG)]));
        stream.verdicts(1).await;
        drop(stream);
        if dropped == 2 {
            client = client_to(&serving).await; // the connection goes with its last stream
        }
        wait_for(&count, dropped).await;
    }
    drop(client);
    serving.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn half_closing_leaves_what_is_in_flight_to_be_answered() {
    let go = Arc::new(Semaphore::new(0));
    let serving = serve(policies().register(waits(&go))).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    stream.send(batch(&request(), vec![call(1, "waits", LONG), call(2, "waits", LONG)]));
    stream.half_close();
    go.add_permits(2);
    let found = stream.verdicts(2).await;
    assert_eq!(response_of(&found[1]).warnings, ["waited"]);
    assert_eq!(stream.next().await.expect("no failure"), None);
    serving.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn draining_is_told_and_late_batches_are_answered() {
    let go = Arc::new(Semaphore::new(0));
    let serving = serve(policies().register(waits(&go))).await;
    let mut client = client_to(&serving).await;
    let (mut quiet, mut closed) =
        (Conversation::open(&mut client).await, Conversation::open(&mut client).await);
    for stream in [&mut quiet, &mut closed] {
        stream.send(batch(&request(), vec![call(1, "waits", LONG), call(2, "allows", LONG)]));
        stream.verdicts(1).await;
    }
    let stopping = tokio::spawn(serving.stop(Duration::from_secs(30)));
    for stream in [&mut quiet, &mut closed] {
        let notice = stream.next().await.expect("no failure").expect("a message");
        assert!(notice.draining);
        // This batch crossed the notice.
        stream.send(batch(&request(), vec![call(3, "allows", LONG)]));
        assert_eq!(stream.verdicts(1).await[0].id, 3);
    }
    closed.half_close();
    go.add_permits(2);
    for stream in [&mut quiet, &mut closed] {
        assert_eq!(stream.verdicts(1).await[0].id, 1);
        assert_eq!(stream.next().await.expect("no failure"), None);
    }
    assert_eq!(stopping.await.expect("no panic"), 0);
}

fn large(review: &mut Review) -> Result {
    review.object_mut()?["text"] = "x".repeat(1024 * 1024).into();
    Ok(())
}

#[tokio::test]
async fn a_stream_whose_verdicts_are_not_read_is_not_quiet() {
    let serving = serve(policies().mutating_policy("large", "", large)).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    stream.send(batch(&request(), vec![call(1, "large", LONG), call(2, "large", LONG)]));
    tokio::time::sleep(Duration::from_millis(300)).await;
    // Not even read, as the verdicts before it are not taken.
    stream.send(batch(&request(), vec![call(3, "allows", LONG)]));
    let stopping = tokio::spawn(serving.stop(Duration::from_secs(30)));
    tokio::time::sleep(Duration::from_millis(800)).await;
    let found: Vec<_> = stream.verdicts(3).await.iter().map(|verdict| verdict.id).collect();
    assert_eq!(found, [1, 2, 3]);
    assert_eq!(stream.next().await.expect("no failure"), None);
    assert_eq!(stopping.await.expect("no panic"), 0);
}
