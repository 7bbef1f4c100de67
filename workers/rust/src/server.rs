//! [`Server`]: the policies of a worker, and its server.

use crate::evaluation::Policies;
use crate::listen::Address;
use crate::meter::measure;
use crate::options::Options;
use crate::policy::{Handler, Policy};
use crate::program;
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
    problem: Option<String>,
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
        let is_taken = self.policies.iter().any(|other| other.name == policy.name);
        let taken = || is_taken.then(|| format!("policy \"{}\" is registered twice", policy.name));
        self.problem = self.problem.or_else(|| policy.problem()).or_else(taken);
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

    /// Serves, in the tokio runtime that this is called in.
    pub async fn start(mut self) -> Result<Serving, StartError> {
        if let Some(problem) = self.problem {
            return Err(StartError::new(problem));
        }
        if self.policies.is_empty() {
            return Err(StartError::new("no policy is registered: add one with .policy(...)"));
        }
        let default = [DEFAULT_LISTEN.to_owned()];
        let listen = if self.listen.is_empty() { &default[..] } else { &self.listen };
        let addresses: Result<Vec<_>, _> = listen.iter().map(|text| Address::parse(text)).collect();
        let addresses = addresses.map_err(StartError::new)?;
        let metrics = self.metrics_listen.map(|listen| (listen, measure(&mut self.policies)));
        Serving::start(Policies::new(self.policies), &addresses, self.tls.as_ref(), metrics).await
    }

    /// Serves as a program until SIGTERM or SIGINT, with the options of its command line.
    ///
    /// Exits with 0 after a shutdown, 1 if the start fails, 2 after a usage error.
    pub fn main(self) -> ! {
        program::main(self)
    }

    /// How many policies are registered.
    pub(crate) fn count(&self) -> usize {
        self.policies.len()
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
