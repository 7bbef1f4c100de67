//! The bounds of a worker: no message and no client stops it for others.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use admission_gateway_worker::{Policy, Review, Value, json};
use hyper::body::{Body, Frame};
use prost::bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::codegen::{Service, http};

use crate::gateway::pb::{Call, Parameters, Payload, ReviewBatch};
use crate::gateway::{
    Conversation, PATIENCE, ask, batch, call, call_after, cancel, channel_to, client_to, error_of,
    response_of,
};
use crate::policies::{Count, LONG, labels, policies, request, serve, wait_for};

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn a_message_of_too_many_elements_ends_that_stream_only() {
    let serving = serve(policies()).await;
    let mut client = client_to(&serving).await;
    let mut other = Conversation::open(&mut client).await;
    let payloads = ReviewBatch { payloads: vec![Payload::default(); 4097], ..Default::default() };
    let calls = ReviewBatch { calls: vec![Call::default(); 8193], ..Default::default() };
    let cancelled = ReviewBatch { cancelled: vec![1 << 62; 4097], ..Default::default() };
    let parameters = vec![Parameters { id: 1, ..Default::default() }; 257];
    let parameters = ReviewBatch { parameters, ..Default::default() };
    for (batch, text) in [
        (payloads, "4097 payloads, expected at most 4096"),
        (calls, "8193 calls, expected at most 8192"),
        (cancelled, "4097 cancelled ids, expected at most 4096"),
        (parameters, "257 parameters, expected at most 256"),
    ] {
        let mut stream = Conversation::open(&mut client).await;
        stream.send(batch);
        let status = stream.next().await.expect_err("a failure");
        let text = format!("a ReviewBatch has {text}");
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, text.as_str()));
    }
    other.send(batch(&request(), vec![call(1, "allows", LONG)]));
    assert_eq!(other.verdicts(1).await[0].id, 1);
}

#[tokio::test]
async fn the_first_4096_calls_of_a_batch_are_evaluated() {
    let serving = serve(policies()).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    stream.send(batch(&request(), (1..=4100).map(|id| call(id, "allows", LONG)).collect()));
    let found = stream.verdicts(4100).await;
    let refused: Vec<_> = found.iter().filter(|verdict| verdict.id > 4096).map(error_of).collect();
    assert_eq!(refused, [(Code::ResourceExhausted as i32, "4096 calls of this stream are in flight"); 4]);
    assert!(
        found[..4096].iter().all(|verdict| matches!(
            verdict.outcome,
            Some(crate::gateway::pb::verdict::Outcome::Response(_))
        ))
    );
}

#[tokio::test]
async fn the_stream_with_most_parameters_is_ended() {
    let serving = serve(policies()).await;
    let mut honest = Conversation::open(&mut client_to(&serving).await).await;
    let with_parameters = |id, length: usize| {
        let parameters = vec![Parameters { id, json: vec![b' '; length] }];
        ReviewBatch { parameters, ..batch(&request(), vec![call(id.into(), "allows", LONG)]) }
    };
    honest.send(with_parameters(1, 60_000));
    honest.verdicts(1).await;
    let mut client = client_to(&serving).await;
    let mut greedy = Vec::new();
    for _ in 0..4 {
        let mut stream = Conversation::open(&mut client).await;
        for id in 1..=256 {
            stream.send(with_parameters(id, 65_536));
        }
        // Of the last one, the sum with those of the other connection is too much.
        while greedy.len() < 3
            && let Some(message) = stream.next().await.expect("no failure")
            && message.verdicts.last().is_none_or(|verdict| verdict.id < 256)
        {}
        greedy.push(stream);
    }
    let mut ended = JoinSet::new();
    for mut stream in greedy {
        ended.spawn(async move {
            loop {
                if let Err(status) = stream.next().await {
                    return status;
                }
            }
        });
    }
    let status = ended.join_next().await.expect("one of them").expect("no panic");
    let text = "there are more than 67108864 bytes of parameters, most of them of this client";
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, text));
    honest.send(batch(&request(), vec![Call { parameters: 1, ..call(2, "allows", LONG) }]));
    assert_eq!(error_of(&honest.verdicts(1).await[0]).1, "policy \"allows\" takes no parameters");
}

#[tokio::test]
async fn the_client_with_most_payloads_in_flight_loses_a_stream() {
    let serving = serve(policies()).await;
    let mut honest = Conversation::open(&mut client_to(&serving).await).await;
    honest.send(batch(&request(), vec![call(1, "forever", LONG)]));
    let mut greedy = Conversation::open(&mut client_to(&serving).await).await;
    for id in 0..37 {
        greedy.send(batch(&json!({"object": "x".repeat(7 * MIB)}), vec![call(id, "forever", LONG)]));
    }
    let status = greedy.next().await.expect_err("a failure");
    let text = "there are more than 268435456 bytes of requests and answers, most of them of this client";
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, text));
    honest.send(batch(&request(), vec![call(2, "allows", LONG)]));
    assert_eq!(honest.verdicts(1).await[0].id, 2);
}

#[tokio::test]
async fn a_long_batch_lets_others_have_their_turn() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let takes_time = move |_: &mut Review| {
        std::thread::sleep(Duration::from_millis(2));
        counted.fetch_add(1, Ordering::SeqCst);
    };
    let serving = serve(policies().policy("takes time", "", takes_time)).await;
    let mut other = Conversation::open(&mut client_to(&serving).await).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    // So large that a run never counts as slow, and the policy stays on the thread of the stream.
    let large = json!({"data": "x".repeat(100_000)});
    stream.send(batch(&large, (0..300).map(|id| call(id, "takes time", LONG)).collect()));
    let found = stream.next().await.expect("no failure").expect("a message").verdicts.len();
    other.send(batch(&request(), vec![call(1, "allows", LONG)]));
    other.verdicts(1).await;
    assert!(count.load(Ordering::SeqCst) < 300);
    stream.verdicts(300 - found).await;
}

#[tokio::test]
async fn a_call_that_ends_between_slices_leaves_its_object_to_the_next_one() {
    let later = Policy::boxed("later", "", |review: &mut Review| {
        Box::pin(async move {
            tokio::task::yield_now().await;
            labels(review)
        })
    });
    let shows = |review: &mut Review| {
        let seen = review.object().expect("JSON")["metadata"]["labels"]["seen"].to_string();
        review.warn(seen);
    };
    let takes_time = |_: &mut Review| std::thread::sleep(Duration::from_millis(2));
    let server = policies().policy("shows", "", shows).policy("takes time", "", takes_time);
    let serving = serve(server.register(later.mutating())).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    let mut calls = vec![call(1, "later", LONG), call_after(1, 2, "later")];
    calls.extend((3..30).map(|id| call(id, "takes time", LONG)));
    calls.extend([call_after(2, 30, "shows"), call_after(1, 31, "shows"), call(32, "shows", LONG)]);
    stream.send(batch(&request(), calls));
    let found = stream.verdicts(32).await;
    let shown: Vec<_> = found[29..].iter().map(|verdict| response_of(verdict).warnings.concat()).collect();
    assert_eq!(shown, ["\"yes\"", "\"yes\"", "null"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_reviews_are_answered_beside_others() {
    let serving = serve(policies()).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    let mut large = request();
    large["object"]["data"] = "x".repeat(MIB).into();
    stream.send(batch(&large, (1..=50).map(|id| call(id, "labels", LONG)).collect()));
    for verdict in stream.verdicts(50).await {
        assert!(!response_of(&verdict).patch.is_empty());
    }
}

#[tokio::test]
async fn answers_wait_while_they_are_not_read() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let wordy = move |review: &mut Review| {
        counted.fetch_add(1, Ordering::SeqCst);
        review.warn("x".repeat(MIB));
    };
    let serving = serve(policies().policy("wordy", "", wordy)).await;
    let mut client = client_to(&serving).await;
    let mut stream = Conversation::open(&mut client).await;
    stream.send(batch(&request(), (0..200).map(|id| call(id, "wordy", LONG)).collect()));
    let mut found = stream.next().await.expect("no failure").expect("a message").verdicts.len();
    assert!(count.load(Ordering::SeqCst) < 200);
    while found < 200 {
        found += stream.next().await.expect("no failure").expect("a message").verdicts.len();
    }
}

/// A policy that counts the calls that begin, and ends each with a permit.
fn counts(count: &Count, go: &Arc<Semaphore>) -> Policy {
    let (count, go) = (Arc::clone(count), Arc::clone(go));
    Policy::boxed("counts", "", move |_| {
        let go = Arc::clone(&go);
        count.0.fetch_add(1, Ordering::SeqCst);
        count.1.notify_one();
        Box::pin(async move {
            go.acquire().await?.forget();
            Ok(())
        })
    })
}

fn large(bytes: usize) -> Value {
    json!({"object": {"x": "x".repeat(bytes)}})
}

#[tokio::test]
async fn the_json_that_is_evaluated_is_bounded() {
    let (count, go) = (Count::default(), Arc::new(Semaphore::new(0)));
    let serving = serve(policies().register(counts(&count, &go))).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    let mut other = client_to(&serving).await;
    stream.send(batch(&large(MIB), (1..=64).map(|id| call(id, "counts", LONG)).collect()));
    // A connection has half of what the others leave: 15 of a little more than 1 MiB.
    wait_for(&count, 15).await;
    let mut others = Conversation::open(&mut other).await;
    others.send(batch(&request(), vec![call(1, "labels", LONG)]));
    others.verdicts(1).await;
    assert!(ask(&mut other, "allows", &request()).await.expect("an answer").allowed);
    // Cancellations go on.
    stream.send(cancel(&[16, 40, 64]));
    // The last one is refused at once.
    stream.send(batch(&request(), vec![call(64, "unknown", LONG), call_after(99, 100, "allows")]));
    assert_eq!(stream.verdicts(1).await[0].id, 100);
    assert_eq!(count.0.load(Ordering::SeqCst), 15);
    go.add_permits(61);
    let found = stream.verdicts(62).await;
    assert!(!found.iter().any(|verdict| [16, 40].contains(&verdict.id)));
    assert_eq!(count.0.load(Ordering::SeqCst), 61);
}

#[tokio::test]
async fn a_call_that_waits_for_room_expires_and_its_payload_is_not_parsed() {
    let (count, go) = (Count::default(), Arc::new(Semaphore::new(0)));
    let serving = serve(policies().register(counts(&count, &go))).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    for id in 1..=3 {
        stream.send(batch(&large(7 * MIB), vec![call(id, "counts", LONG)]));
    }
    wait_for(&count, 2).await;
    let mut calls: Vec<_> = (4..40).map(|id| call(id, "denies", 20)).collect();
    // The time of this one begins when the call before it has expired.
    calls.push(call_after(4, 40, "allows"));
    stream.send(batch(&Value::from("no object".repeat(MIB / 8)), calls));
    for verdict in stream.verdicts(36).await {
        assert_eq!(error_of(&verdict), (4, "the deadline passed before the policy answered"));
    }
    go.add_permits(3);
    let found = stream.verdicts(4).await;
    assert_eq!(found.iter().map(|verdict| verdict.id).collect::<Vec<_>>(), [1, 2, 3, 40]);
    assert!(found.iter().all(|verdict| response_of(verdict).allowed));
}

/// A policy that adds so many bytes to the object.
fn grows(bytes: usize) -> impl Fn(&mut Review) + Send + Sync {
    move |review| {
        let object = review.object_mut().expect("JSON").as_object_mut().expect("an object");
        object.insert(format!("added{}", object.len()), "x".repeat(bytes).into());
    }
}

#[tokio::test]
async fn calls_behind_patches_that_one_message_could_have_are_evaluated() {
    let shows = |review: &mut Review| {
        let names: Vec<_> =
            review.object().expect("JSON").as_object().expect("an object").keys().cloned().collect();
        review.warn(names.join(" "));
    };
    let server = policies().mutating_policy("grows", "", grows(3 * MIB)).policy("shows", "", shows);
    let serving = serve(server).await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    let mut calls = vec![call(1, "grows", LONG), call_after(1, 2, "grows"), call_after(2, 3, "shows")];
    calls.extend([call_after(2, 4, "grows"), call_after(4, 5, "shows"), call_after(5, 6, "allows")]);
    stream.send(batch(&json!({"object": {"a": 1}}), calls));
    let found = stream.verdicts(6).await;
    assert_eq!(response_of(&found[2]).warnings, ["a added1 added2"]);
    for verdict in &found[4..] {
        let (code, text) = error_of(verdict);
        assert!(
            verdict.chained
                && code == 8
                && text.starts_with("the calls before this one leave patches of 9437"),
            "{text}"
        );
    }
}

/// The begin of a message, and never the rest.
struct Begin(Option<Bytes>);

impl Body for Begin {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        self.0.take().map_or(Poll::Pending, |begin| Poll::Ready(Some(Ok(Frame::data(begin)))))
    }
}

#[tokio::test]
async fn the_client_with_most_incomplete_messages_loses_a_call() {
    let serving = serve(policies()).await;
    let mut honest = Conversation::open(&mut client_to(&serving).await).await;
    let mut begin = vec![0; 8 * MIB];
    begin[2] = 128;
    let begin = Bytes::from(begin);
    let mut calls = JoinSet::new();
    let channel = channel_to(&serving.addresses()[0]).await;
    for _ in 0..33 {
        let mut request = http::Request::new(tonic::body::Body::new(Begin(Some(begin.clone()))));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = "/admissiongateway.worker.v1.PolicyWorker/Review".parse().expect("a path");
        request.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
        let mut channel = channel.clone();
        calls.spawn(async move {
            std::future::poll_fn(|context| channel.poll_ready(context)).await.expect("a connection");
            channel.call(request).await.expect("an answer")
        });
    }
    let ended = tokio::time::timeout(PATIENCE, calls.join_next()).await.expect("an end in time");
    let headers = ended.expect("one of them").expect("no panic").headers().clone();
    assert_eq!(headers["grpc-status"], "8", "{headers:?}");
    honest.send(batch(&request(), vec![call(1, "allows", LONG)]));
    assert_eq!(honest.verdicts(1).await[0].id, 1);
}

#[tokio::test]
async fn many_idle_connections_keep_nobody_out() {
    let serving = serve(policies()).await;
    let mut honest = Conversation::open(&mut client_to(&serving).await).await;
    honest.send(batch(&request(), vec![call(1, "allows", LONG)]));
    honest.verdicts(1).await;
    let mut idle = Vec::new();
    for _ in 0..1100 {
        idle.push(tokio::net::TcpStream::connect(&serving.addresses()[0]).await.expect("a connection"));
    }
    honest.send(batch(&request(), vec![call(2, "allows", LONG)]));
    assert_eq!(honest.verdicts(1).await[0].id, 2);
    assert!(ask(&mut client_to(&serving).await, "allows", &request()).await.expect("an answer").allowed);
}
