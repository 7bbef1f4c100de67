//! The methods of the contract, and which path leads to which service.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tonic::codegen::{Service, http};
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_health::pb::health_server::HealthServer;

use crate::answer::{MAX_MESSAGE_BYTES, Outcome, error};
use crate::client::{self, Connection, Rpc};
use crate::evaluation::Policies;
use crate::health::Health;
use crate::parameters::{check, too_long};
use crate::payload::Payload;
use crate::pb;
use crate::pb::policy_worker_server::{PolicyWorker, PolicyWorkerServer};
use crate::policy::Policy;
use crate::replacer::Served;
use crate::review::Review;
use crate::stream::ReviewStream;

/// The service's full name.
pub(crate) const SERVICE: &str = "admissiongateway.worker.v1.PolicyWorker";

/// Same limit as for a stream. HTTP/2's own limit would count streams and health watches too.
const MAX_UNARY_IN_FLIGHT: usize = 4096;

/// How many Reviews and ReviewStreams are open.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    open: AtomicUsize,
    unary: AtomicUsize,
    left: Notify,
}

impl Activity {
    fn enter(self: &Arc<Self>, is_unary: bool) -> Open {
        self.open.fetch_add(1, Ordering::SeqCst);
        if is_unary {
            self.unary.fetch_add(1, Ordering::SeqCst);
        }
        Open { activity: Arc::clone(self), is_unary }
    }

    /// Waits until none is.
    pub(crate) async fn idle(&self) {
        loop {
            let mut left = std::pin::pin!(self.left.notified());
            left.as_mut().enable();
            if self.open.load(Ordering::SeqCst) == 0 {
                return;
            }
            left.await;
        }
    }
}

/// One Review or ReviewStream, for as long as it is open.
#[derive(Debug)]
pub(crate) struct Open {
    activity: Arc<Activity>,
    is_unary: bool,
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.is_unary {
            self.activity.unary.fetch_sub(1, Ordering::SeqCst);
        }
        if self.activity.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.activity.left.notify_waiters();
        }
    }
}

/// The contract's service over some policies.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) served: Arc<Served>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) drain: CancellationToken,
}

impl Worker {
    /// Returns the policy of a unary call among `policies`, or the outcome of the call.
    fn find<'a>(&self, policies: &'a Policies, name: &str) -> Result<&'a Arc<Policy>, Outcome> {
        let policy = policies.find(name).ok_or_else(|| policies.unknown(name))?;
        if self.activity.unary.load(Ordering::SeqCst) > MAX_UNARY_IN_FLIGHT {
            return Err(error(Code::ResourceExhausted, format!("{MAX_UNARY_IN_FLIGHT} calls are in flight")));
        }
        Ok(policy)
    }

    async fn outcome(
        &self,
        request: pb::ReviewRequest,
        rpc: &Arc<Rpc>,
        timeout: Option<Duration>,
        traceparent: Option<Vec<u8>>,
    ) -> Outcome {
        let policies = self.served.now();
        let policy = match self.find(&policies, &request.policy) {
            Ok(policy) => policy,
            Err(problem) => return problem,
        };
        if let Some(problem) = too_long(&request.parameters) {
            return error(Code::InvalidArgument, problem);
        }
        // A time too long to be reckoned with is none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let payload = Payload::new(rpc.keep(request.admission_request), rpc.keep(request.namespace_object));
        let review = Review::new(payload, deadline, policy.mutating);
        let review = review.with_parameters_json(rpc.keep(request.parameters));
        let review = review.with_traceparent(traceparent.unwrap_or_default());
        let room = rpc.room(review.size());
        policies.evaluate(policy, review, room, rpc).await.outcome
    }
}

#[tonic::async_trait]
impl PolicyWorker for Worker {
    type ReviewStreamStream = ReviewStream;

    async fn list_policies(
        &self,
        _: Request<pb::ListPoliciesRequest>,
    ) -> Result<Response<pb::ListPoliciesResponse>, Status> {
        let policies = self.served.now();
        let policies = policies.in_order().iter().map(|policy| pb::Policy {
            name: policy.name.clone(),
            description: policy.description.clone(),
            mutating: policy.mutating,
            version: policy.version.clone(),
            parameters_schema: policy
                .parameters
                .as_ref()
                .map(|one| one.schema.to_string())
                .unwrap_or_default(),
        });
        Ok(Response::new(pb::ListPoliciesResponse { policies: policies.collect() }))
    }

    async fn review(
        &self,
        request: Request<pb::ReviewRequest>,
    ) -> Result<Response<pb::ReviewResponse>, Status> {
        let _open = self.activity.enter(true);
        let timeout = timeout_in(request.metadata());
        let traceparent = request.metadata().get("traceparent").map(|value| value.as_bytes().to_vec());
        let rpc = rpc_of(&request);
        match self.outcome(request.into_inner(), &rpc, timeout, traceparent).await {
            Outcome::Allowed => Ok(Response::new(pb::ReviewResponse { allowed: true, ..Default::default() })),
            Outcome::Response(mut response) => {
                // Until it is sent.
                response.patch = rpc.keep(std::mem::take(&mut response.patch));
                Ok(Response::new(*response))
            }
            Outcome::Error(failed) => Err(status_of(failed)),
        }
    }

    /// Prepares the parameters as a call would, in a thread: nobody knows how long that takes.
    async fn check_parameters(
        &self,
        request: Request<pb::CheckParametersRequest>,
    ) -> Result<Response<pb::CheckParametersResponse>, Status> {
        let _open = self.activity.enter(true);
        let request = request.into_inner();
        let policies = self.served.now();
        let policy = match self.find(&policies, &request.policy) {
            Ok(policy) => Arc::clone(policy),
            Err(Outcome::Error(problem)) => return Err(status_of(problem)),
            Err(_) => unreachable!("the outcome of a call without a policy is an error"),
        };
        let checked = tokio::task::spawn_blocking(move || check(&policy, &request.parameters)).await;
        let problem = checked.map_err(|gone| Status::internal(gone.to_string()))?.unwrap_or_default();
        let Outcome::Error(pb::Error { message: problem, .. }) = error(Code::InvalidArgument, problem) else {
            unreachable!("error makes errors");
        };
        Ok(Response::new(pb::CheckParametersResponse { problem }))
    }

    async fn review_stream(
        &self,
        request: Request<Streaming<pb::ReviewBatch>>,
    ) -> Result<Response<ReviewStream>, Status> {
        let open = self.activity.enter(false);
        let (served, drain, rpc) = (Arc::clone(&self.served), self.drain.clone(), rpc_of(&request));
        Ok(Response::new(ReviewStream::new(request.into_inner(), served, drain, rpc, open)))
    }
}

fn rpc_of<T>(request: &Request<T>) -> Arc<Rpc> {
    Arc::clone(request.extensions().get::<Arc<Rpc>>().expect("the routes have set it"))
}

fn status_of(failed: pb::Error) -> Status {
    Status::new(Code::from(failed.code), failed.message)
}

/// Returns how long the caller waits (the `grpc-timeout` of gRPC over HTTP/2), `None` for ever.
fn timeout_in(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count.checked_mul(3600)?),
        "M" => Duration::from_secs(count.checked_mul(60)?),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

/// tonic calls a message over the limit OUT_OF_RANGE, every other gRPC and the contract RESOURCE_EXHAUSTED.
pub(crate) fn size_limit_as_exhausted(status: Status) -> Status {
    match status.code() {
        Code::OutOfRange => Status::resource_exhausted(status.message()),
        _ => status,
    }
}

/// Leads each request to its service.
#[derive(Clone)]
pub(crate) struct Routes {
    worker: PolicyWorkerServer<Worker>,
    health: HealthServer<Health>,
}

impl Routes {
    pub(crate) fn new(worker: Worker) -> Self {
        let health = HealthServer::new(Health::new(worker.drain.clone()));
        let worker = PolicyWorkerServer::new(worker)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Self { worker, health }
    }

    /// The routes for the requests of one connection.
    pub(crate) fn of(&self, connection: Arc<Connection>) -> ConnectionRoutes {
        ConnectionRoutes { routes: self.clone(), connection }
    }

    async fn answer(mut self, request: http::Request<client::Request>) -> Answered {
        let service = request.uri().path().strip_prefix('/').and_then(|path| path.split('/').next());
        match service {
            Some(SERVICE) => {
                let mut response = self.worker.call(request).await?;
                let status = response.headers_mut().get_mut(Status::GRPC_STATUS);
                if let Some(status) = status.filter(|status| *status == "11") {
                    // The status of no policy, so tonic's for a message over the limit: see above.
                    *status = http::HeaderValue::from_static("8");
                }
                Ok(response)
            }
            Some("grpc.health.v1.Health") => self.health.call(request).await,
            _ => Ok(Status::unimplemented("").into_http()),
        }
    }
}

type Answered = Result<http::Response<tonic::body::Body>, Infallible>;

/// The routes of one connection, whose RPCs are counted.
pub(crate) struct ConnectionRoutes {
    routes: Routes,
    connection: Arc<Connection>,
}

impl hyper::service::Service<http::Request<Incoming>> for ConnectionRoutes {
    type Response = http::Response<client::Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let rpc = self.connection.open();
        let mut request = request.map(|body| client::Request::new(body, Arc::clone(&rpc)));
        request.extensions_mut().insert(Arc::clone(&rpc));
        let answer = self.routes.clone().answer(request);
        Box::pin(async move {
            let answered = tokio::select! {
                biased;
                status = rpc.excess() => Ok(status.into_http()),
                answered = answer => answered,
            };
            answered.map(|response| response.map(|body| client::Answer::new(body, rpc)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        let read = |text: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().expect("a header"));
            timeout_in(&metadata)
        };
        assert_eq!(read("2S"), Some(Duration::from_secs(2)));
        assert_eq!(read("150m"), Some(Duration::from_millis(150)));
        assert_eq!(read("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(read("0n"), Some(Duration::ZERO));
        for odd in ["", "S", "2", "2s", "-1S", "é"] {
            assert_eq!(read(odd), None, "{odd}");
        }
        assert_eq!(timeout_in(&MetadataMap::new()), None);
    }
}
