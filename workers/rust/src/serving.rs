//! One running server: sockets, connections, health, and the order in which it stops.
//!
//! Shutdown: health becomes NOT_SERVING, every stream gets the drain notice, new connections and calls are
//! rejected, and every connection gets GOAWAY. Calls in flight end within the grace period; then the rest is
//! aborted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::{Connection, Limits};
use crate::listen::{Address, Listener, SocketFile, bind};
use crate::metrics;
use crate::replacer::Served;
use crate::service::{Routes, Worker};
use crate::tls::Tls;

/// Idle time before a keepalive ping to the gateway, and the timeout of its acknowledgement. Pings of the
/// gateway are accepted at any rate.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// HTTP/2 streams of a connection. More than the limit of 4,096 calls, so that an excess call is rejected
/// with a status instead of queued.
const MAX_STREAMS: u32 = 8192;

/// Streams that a client may open and reset before they are processed; a gateway may cancel a thousand calls
/// at once.
const MAX_RESETS: usize = 1024;

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long to wait for a file descriptor when there are none left.
pub(crate) const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Time for idle connections to close.
const CLOSE: Duration = Duration::from_millis(100);

/// Time for aborted calls to end.
const CUT: Duration = Duration::from_secs(1);

/// The worker cannot start; the text has the reason.
#[derive(Debug)]
pub struct StartError(String);

impl StartError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// Policies being served, until [`stop`](Self::stop) or until it is dropped.
pub struct Serving {
    addresses: Vec<String>,
    metrics_address: Option<String>,
    worker: Worker,
    tasks: TaskTracker,
    cut: CancellationToken,
    socket_files: Vec<SocketFile>,
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Serving {
    pub(crate) async fn start(
        served: Arc<Served>,
        listen: &[Address],
        tls: Option<&Tls>,
        metrics: Option<(String, Registry)>,
    ) -> Result<Self, StartError> {
        let acceptor = tls.map(Tls::acceptor).transpose()?;
        let mut bound = Vec::new();
        let mut serving = Self {
            addresses: Vec::new(),
            metrics_address: None,
            worker: Worker { served, activity: Default::default(), drain: CancellationToken::new() },
            tasks: TaskTracker::new(),
            cut: CancellationToken::new(),
            socket_files: Vec::new(),
        };
        for address in listen {
            let (listener, address, file) = bind(address).await?;
            serving.addresses.push(address.to_string());
            serving.socket_files.extend(file);
            bound.push(listener);
        }
        if let Some((listen, metrics)) = metrics {
            serving.metrics_address = Some(metrics::serve(&listen, metrics, serving.cut.clone()).await?);
        }
        let routes = Routes::new(serving.worker.clone());
        let limits = Arc::new(Limits::default());
        for listener in bound {
            let connections = Connections {
                routes: routes.clone(),
                limits: Arc::clone(&limits),
                acceptor: acceptor.clone(),
                drain: serving.worker.drain.clone(),
                cut: serving.cut.clone(),
                tasks: serving.tasks.clone(),
            };
            match listener {
                Listener::Tcp(listener) => serving.tasks.spawn(connections.accept_tcp(listener)),
                Listener::Unix(listener) => serving.tasks.spawn(connections.accept_unix(listener)),
            };
        }
        Ok(serving)
    }

    /// The addresses that were bound, with the port in place of a 0.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// How many policies are served now.
    pub(crate) fn count(&self) -> usize {
        self.worker.served.now().in_order().len()
    }

    /// The HOST:PORT of the metrics, if they are served.
    pub fn metrics_address(&self) -> Option<&str> {
        self.metrics_address.as_deref()
    }

    /// Drains for at most `grace`, then cancels the remaining calls.
    ///
    /// Returns the number of threads that still run a policy, which cannot be stopped.
    pub async fn stop(self, grace: Duration) -> usize {
        self.worker.drain.cancel();
        self.tasks.close();
        let _ = timeout(grace, self.worker.activity.idle()).await;
        // Health watches never end by themselves.
        let _ = timeout(CLOSE, self.tasks.wait()).await;
        self.cut.cancel();
        let _ = timeout(CUT, async {
            self.tasks.wait().await;
            self.worker.activity.idle().await;
        })
        .await;
        self.worker.served.busy_threads()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.worker.drain.cancel();
        self.cut.cancel();
    }
}

/// What accepts the connections of one socket, and serves them.
#[derive(Clone)]
struct Connections {
    routes: Routes,
    limits: Arc<Limits>,
    acceptor: Option<TlsAcceptor>,
    drain: CancellationToken,
    cut: CancellationToken,
    tasks: TaskTracker,
}

impl Connections {
    async fn accept_tcp(self, listener: TcpListener) {
        while let Some(accepted) = self.drain.run_until_cancelled(listener.accept()).await {
            let Ok((stream, address)) = accepted else {
                sleep(ACCEPT_AGAIN).await;
                continue;
            };
            let _ = stream.set_nodelay(true);
            let (connections, connection) = (self.clone(), self.limits.connected(Some(address.ip())));
            self.tasks.spawn(async move {
                let excess = connection.excess();
                let served = async move {
                    match connections.acceptor.clone() {
                        None => connections.serve(stream, connection).await,
                        Some(acceptor) => {
                            let handshake = timeout(HANDSHAKE, acceptor.accept(stream));
                            if let Some(Ok(Ok(stream))) = connections.cut.run_until_cancelled(handshake).await
                            {
                                connections.serve(stream, connection).await;
                            }
                        }
                    }
                };
                unless(excess, served).await;
            });
        }
    }

    async fn accept_unix(self, listener: UnixListener) {
        while let Some(accepted) = self.drain.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((stream, _)) => {
                    let (connections, connection) = (self.clone(), self.limits.connected(None));
                    self.tasks.spawn(async move {
                        let excess = connection.excess();
                        unless(excess, connections.serve(stream, connection)).await;
                    });
                }
                Err(_) => sleep(ACCEPT_AGAIN).await,
            }
        }
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        connection: Connection,
    ) {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE.0)
            .keep_alive_timeout(KEEPALIVE.1)
            .max_concurrent_streams(MAX_STREAMS)
            .max_pending_accept_reset_streams(MAX_RESETS)
            .auto_date_header(false);
        let routes = self.routes.of(Arc::new(connection));
        let connection = builder.serve_connection(TokioIo::new(stream), routes);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = self.drain.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        let _ = self.cut.run_until_cancelled(connection).await;
    }
}

/// Serves a connection unless it is one too many.
async fn unless(excess: impl Future<Output = ()>, served: impl Future<Output = ()>) {
    tokio::select! {
        () = excess => {}
        () = served => {}
    }
}
