//! `grpc.health.v1` for the whole server and for the service: SERVING, until the worker drains.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_server};

use crate::service::SERVICE;

pub(crate) struct Health {
    drain: CancellationToken,
}

impl Health {
    pub(crate) fn new(drain: CancellationToken) -> Self {
        Self { drain }
    }

    fn status(&self, service: &str) -> Option<ServingStatus> {
        let is_known = service.is_empty() || service == SERVICE;
        let status =
            if self.drain.is_cancelled() { ServingStatus::NotServing } else { ServingStatus::Serving };
        is_known.then_some(status)
    }
}

#[tonic::async_trait]
impl health_server::Health for Health {
    type WatchStream = Watch;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match self.status(&request.get_ref().service) {
            Some(status) => Ok(Response::new(said(status))),
            None => Err(Status::not_found("no such service")),
        }
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Watch>, Status> {
        let status = self.status(&request.get_ref().service);
        let first = status.unwrap_or(ServingStatus::ServiceUnknown);
        let drain = (first == ServingStatus::Serving).then(|| Box::pin(self.drain.clone().cancelled_owned()));
        Ok(Response::new(Watch { first: Some(first), drain }))
    }
}

/// What one service's health is now, and what it becomes. Goes on until the caller or the server ends it.
pub(crate) struct Watch {
    first: Option<ServingStatus>,
    drain: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Stream for Watch {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(status) = self.first.take() {
            return Poll::Ready(Some(Ok(said(status))));
        }
        match self.drain.as_mut().map(|drain| drain.as_mut().poll(context)) {
            Some(Poll::Ready(())) => {
                self.drain = None;
                Poll::Ready(Some(Ok(said(ServingStatus::NotServing))))
            }
            _ => Poll::Pending,
        }
    }
}

fn said(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status as i32 }
}
