//! The other side: a gateway that asks a worker over real sockets.

use std::time::Duration;

use admission_gateway_worker::{Serving, Value};
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

#[allow(clippy::all)]
pub mod pb {
    include!(concat!(env!("OUT_DIR"), "/client/admissiongateway.worker.v1.rs"));
}

use crate::policies::LONG;
use pb::policy_worker_client::PolicyWorkerClient;
use pb::{Call, Payload, ReviewBatch, ReviewRequest, ReviewResponse, Verdict, VerdictBatch};

pub type Client = PolicyWorkerClient<Channel>;

const LIMIT: usize = 8 * 1024 * 1024;

/// Longer than anything here takes, however busy the machine; what runs into it has gone wrong.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub async fn connect(address: &str) -> Client {
    client_of(channel_to(address).await)
}

pub async fn channel_to(address: &str) -> Channel {
    let target = match address.strip_prefix("unix:") {
        Some(path) => format!("unix://{path}"),
        None => format!("http://{address}"),
    };
    Endpoint::from_shared(target).expect("an endpoint").connect().await.expect("a connection")
}

pub fn client_of(channel: Channel) -> Client {
    PolicyWorkerClient::new(channel).max_decoding_message_size(LIMIT).max_encoding_message_size(4 * LIMIT)
}

pub async fn client_to(serving: &Serving) -> Client {
    connect(&serving.addresses()[0]).await
}

pub fn request(policy: &str, request: &Value) -> ReviewRequest {
    ReviewRequest {
        policy: policy.to_owned(),
        admission_request: request.to_string().into_bytes(),
        ..Default::default()
    }
}

pub async fn ask(client: &mut Client, policy: &str, about: &Value) -> Result<ReviewResponse, Status> {
    let answer = tokio::time::timeout(PATIENCE, client.review(request(policy, about)));
    answer.await.expect("an answer in time").map(|response| response.into_inner())
}

pub fn call(id: u64, policy: &str, timeout_millis: u32) -> Call {
    Call { id, policy: policy.to_owned(), timeout_millis, ..Default::default() }
}

pub fn call_after(after: u64, id: u64, policy: &str) -> Call {
    Call { after, ..call(id, policy, LONG) }
}

pub fn batch(about: &Value, calls: Vec<Call>) -> ReviewBatch {
    let payload = Payload { admission_request: about.to_string().into_bytes(), ..Default::default() };
    ReviewBatch { payloads: vec![payload], calls, ..Default::default() }
}

pub fn cancel(ids: &[u64]) -> ReviewBatch {
    ReviewBatch { cancelled: ids.to_vec(), ..Default::default() }
}

/// One open ReviewStream.
pub struct Conversation {
    outbound: Option<mpsc::UnboundedSender<ReviewBatch>>,
    inbound: Streaming<VerdictBatch>,
}

impl Conversation {
    pub async fn open(client: &mut Client) -> Self {
        let (outbound, batches) = mpsc::unbounded_channel();
        let response = client.review_stream(UnboundedReceiverStream::new(batches)).await.expect("a stream");
        Self { outbound: Some(outbound), inbound: response.into_inner() }
    }

    pub fn send(&self, batch: ReviewBatch) {
        self.outbound.as_ref().expect("not half-closed").send(batch).expect("an open stream");
    }

    pub fn half_close(&mut self) {
        self.outbound = None;
    }

    /// The next message; `None` at the end with OK.
    pub async fn next(&mut self) -> Result<Option<VerdictBatch>, Status> {
        tokio::time::timeout(PATIENCE, self.inbound.message()).await.expect("a message in time")
    }

    /// The verdicts of so many calls, by id, however they are grouped.
    pub async fn verdicts(&mut self, count: usize) -> Vec<Verdict> {
        let mut found = Vec::new();
        while found.len() < count {
            let message = self.next().await.expect("no failure").expect("not the end");
            found.extend(message.verdicts);
        }
        assert_eq!(found.len(), count);
        found.sort_by_key(|verdict| verdict.id);
        found
    }
}

pub fn response_of(verdict: &Verdict) -> &ReviewResponse {
    match &verdict.outcome {
        Some(pb::verdict::Outcome::Response(response)) => response,
        other => panic!("no response: {other:?}"),
    }
}

pub fn error_of(verdict: &Verdict) -> (i32, &str) {
    match &verdict.outcome {
        Some(pb::verdict::Outcome::Error(error)) => (error.code, &error.message),
        other => panic!("no error: {other:?}"),
    }
}
