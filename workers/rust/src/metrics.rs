//! The metrics of a worker over HTTP, in Prometheus' text format.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::prometheus_text::{CONTENT_TYPE, encode};
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::codegen::http::{Method, Request, Response};

use crate::listen::{Address, Listener, bind};
use crate::serving::{ACCEPT_AGAIN, StartError};

pub(crate) const PATH: &str = "/metrics";

/// Bounds of a request and of their number: the port has no authentication.
const REQUEST: Duration = Duration::from_secs(5);
const MAX_CONNECTIONS: usize = 16;
const MAX_HEADER_BYTES: usize = 8192;

/// Parses the address of `--metrics-listen`.
pub(crate) fn parse(text: &str) -> Result<Address, String> {
    match Address::parse(text)? {
        Address::Unix(_) => Err("HOST:PORT is expected".to_owned()),
        address => Ok(address),
    }
}

/// Serves the metrics until `end`; returns the address, with its port.
pub(crate) async fn serve(
    listen: &str,
    metrics: Registry,
    end: CancellationToken,
) -> Result<String, StartError> {
    let failed = |text: &dyn Display| StartError::new(format!("--metrics-listen: {text}"));
    let address = parse(listen).map_err(|text| failed(&text))?;
    let (listener, address, _) = bind(&address).await.map_err(|error| failed(&error))?;
    let Listener::Tcp(listener) = listener else { unreachable!("the address is HOST:PORT") };
    tokio::spawn(async move { end.run_until_cancelled(accept(listener, metrics.into())).await });
    Ok(address.to_string())
}

async fn accept(listener: TcpListener, metrics: Arc<Registry>) {
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = Arc::clone(&free).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let answer = answer_one(stream, Arc::clone(&metrics));
                tokio::spawn(async move {
                    let _permit = permit;
                    let _ = timeout(REQUEST, answer).await;
                });
            }
            Err(_) => sleep(ACCEPT_AGAIN).await,
        }
    }
}

async fn answer_one(stream: TcpStream, metrics: Arc<Registry>) {
    let service = service_fn(|request| {
        let answer = answer(&request, &metrics);
        async { Ok::<_, Infallible>(answer) }
    });
    let mut builder = http1::Builder::new();
    builder.keep_alive(false).timer(TokioTimer::new()).max_buf_size(MAX_HEADER_BYTES);
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

fn answer(request: &Request<Incoming>, metrics: &Registry) -> Response<String> {
    let (mut kind, mut text) = ("text/plain; charset=utf-8", String::new());
    let status = if request.uri().path() != PATH {
        text = format!("the metrics are at {PATH}\n");
        404
    } else if ![Method::GET, Method::HEAD].contains(request.method()) {
        text = "only GET and HEAD are served\n".to_owned();
        405
    } else {
        kind = CONTENT_TYPE;
        encode(&mut text, metrics).expect("a String takes all");
        200
    };
    let response = Response::builder().status(status).header("content-type", kind).body(text);
    response.expect("a valid response")
}
