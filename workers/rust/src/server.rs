//! [`Server`]: the policies of a worker, and its server.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::listen::Address;
use crate::meter::measure;
use crate::options::{Flag, Options};
use crate::policy::{Handler, Policy};
use crate::program;
use crate::replacer::{Replacer, problem_of};
use crate::serving::{Serving, StartError};
use crate::tls::Tls;

/// The default listening address.
pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:50051";

/// Serves policies to gateways.
///
/// Register functions with [`policy`](Self::policy) and [`mutating_policy`](Self::mutating_policy); then
/// [`main`](Self::main) runs a program, or [`start`](Self::start) a server within one.
#[derive(Debug, Default)]
#[must_use = "a server serves nothing before main() or start()"]
pub struct Server {
    policies: Vec<Policy>,
    listen: Vec<String>,
    tls: Option<Tls>,
    metrics_listen: Option<String>,
    replacer: Replacer,
    pub(crate) flags: Vec<Flag>,
    pub(crate) prepare: Option<Prepare>,
}

type Preparation = Pin<Box<dyn Future<Output = Result<(), StartError>> + Send>>;

/// What [`Server::before_serving`] was given.
pub(crate) struct Prepare(pub(crate) Box<dyn FnOnce() -> Preparation + Send>);

impl fmt::Debug for Prepare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prepare")
    }
}

impl Server {
    /// A server without policies.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a policy that allows or denies: a plain or an async function of one
    /// [`Review`](crate::Review).
    ///
    /// A name that is empty or taken is told of when the server starts.
    pub fn policy<M>(self, name: &str, description: &str, function: impl Handler<M>) -> Self {
        self.register(Policy::new(name, description, function))
    }

    /// Registers a policy that may change the object.
    pub fn mutating_policy<M>(self, name: &str, description: &str, function: impl Handler<M>) -> Self {
        self.register(Policy::new(name, description, function).mutating())
    }

    /// Registers a policy with all that can be said about it.
    pub fn register(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Serves on this address too: `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`; port 0 chooses one.
    ///
    /// 127.0.0.1:50051 where none is named.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen.push(address.into());
        self
    }

    /// Serves with TLS, on all addresses that are no unix sockets.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Serves metrics on this `HOST:PORT`, over plain HTTP at `/metrics`; there are none otherwise.
    pub fn metrics_listen(mut self, address: impl Into<String>) -> Self {
        self.metrics_listen = Some(address.into());
        self
    }

    /// What replaces the policies, before and while they are served.
    pub fn replacer(&self) -> Replacer {
        self.replacer.clone()
    }

    /// Adds an option of the program's own to [`main`](Self::main): `name` such as `--policies`, its `value` as the
    /// help shows it (`DIR`), empty for an option without one, and one line of help.
    ///
    /// `set` is called each time that the command line has the option; its error is a usage error.
    pub fn flag<E: fmt::Display>(
        mut self,
        name: &str,
        value: &str,
        usage: &str,
        mut set: impl FnMut(String) -> Result<(), E> + Send + 'static,
    ) -> Self {
        self.flags.push(Flag {
            name: name.to_owned(),
            value: value.to_owned(),
            usage: usage.to_owned(),
            set: Box::new(move |given| set(given).map_err(|problem| problem.to_string())),
        });
        self
    }

    /// Has [`main`](Self::main) call this after the arguments are parsed and before it listens. An error ends the
    /// program with status 1; it may have several lines.
    pub fn before_serving<T, E>(mut self, prepare: impl FnOnce() -> T + Send + 'static) -> Self
    where
        T: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        self.prepare = Some(Prepare(Box::new(move || {
            let prepared = prepare();
            Box::pin(async move { prepared.await.map_err(|problem| StartError::new(problem.to_string())) })
        })));
        self
    }

    /// Serves, in the tokio runtime that this is called in.
    pub async fn start(self) -> Result<Serving, StartError> {
        let policies = match self.replacer.0.replaced() {
            Some(policies) => policies,
            None if self.policies.is_empty() => {
                return Err(StartError::new("no policy is registered: add one with .policy(...)"));
            }
            None => self.policies,
        };
        if let Some(problem) = problem_of(&policies) {
            return Err(StartError::new(problem));
        }
        let default = [DEFAULT_LISTEN.to_owned()];
        let listen = if self.listen.is_empty() { &default[..] } else { &self.listen };
        let addresses: Result<Vec<_>, _> = listen.iter().map(|text| Address::parse(text)).collect();
        let addresses = addresses.map_err(StartError::new)?;
        let (metrics, meters) = match self.metrics_listen {
            None => (None, None),
            Some(listen) => {
                let (registry, meters) = measure();
                (Some((listen, registry)), Some(meters))
            }
        };
        let served = self.replacer.0;
        served.begin(policies, meters);
        Serving::start(served, &addresses, self.tls.as_ref(), metrics).await
    }

    /// Serves as a program until SIGTERM or SIGINT, with the options of its command line.
    ///
    /// Exits with 0 after a shutdown, 1 if the start fails, 2 after a usage error.
    pub fn main(self) -> ! {
        program::main(self)
    }

    /// The same server where the command line says.
    pub(crate) fn told(mut self, options: Options) -> Self {
        if !options.listen.is_empty() {
            self.listen = options.listen;
        }
        self.tls = options.tls.or(self.tls);
        self.metrics_listen = options.metrics_listen.or(self.metrics_listen);
        self
    }
}
