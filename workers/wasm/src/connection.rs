//! How the API server is reached: by the account of the Pod, or by a kubeconfig.
//!
//! Source: kubernetes/client-go rest/config.go (InClusterConfig), tools/clientcmd/api/v1/types.go.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, BodyReader, RequestBuilder};

/// Where a Pod has its account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Until a connection is there, also where an evaluation has more time.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Characters of an answer that says why something is refused.
const MAX_REASON: usize = 300;

/// What this program cannot do for a user or a cluster of a kubeconfig.
const UNKNOWN: [&str; 7] = [
    "exec",
    "auth-provider",
    "username",
    "password",
    "proxy-url",
    "tls-server-name",
    "insecure-skip-tls-verify",
];

/// An API server.
pub struct Connection {
    agent: Agent,
    /// Without a slash at its end.
    url: String,
    token: Token,
}

enum Token {
    /// A client certificate, or nothing.
    Absent,
    Fixed(String),
    /// Kubernetes writes a new one from time to time.
    File(PathBuf),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Of HTTP; 0 without an answer.
    pub status: u16,
    /// One line.
    pub text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Connection {
    /// Reads `kubeconfig`, or without one the account of the Pod. Makes no request.
    pub fn new(kubeconfig: Option<&Path>) -> Result<Self, String> {
        match kubeconfig {
            Some(file) => of_file(file).map_err(|problem| format!("{}: {problem}", file.display())),
            None => {
                let host = std::env::var("KUBERNETES_SERVICE_HOST").unwrap_or_default();
                let port = std::env::var("KUBERNETES_SERVICE_PORT").unwrap_or_default();
                if host.is_empty() || port.is_empty() {
                    return Err("--cluster: found no account of a Pod (KUBERNETES_SERVICE_HOST); outside of a cluster \
                                name a --kubeconfig FILE"
                        .to_owned());
                }
                let folder = Path::new(ACCOUNT);
                let ca = bytes(&folder.join("ca.crt"))?;
                let host = if host.contains(':') { format!("[{host}]") } else { host };
                let token = Token::File(folder.join("token"));
                Self::made(&format!("https://{host}:{port}"), Some(&ca), None, token)
            }
        }
    }

    fn made(url: &str, ca: Option<&[u8]>, client: Option<ClientCert>, token: Token) -> Result<Self, String> {
        let roots = match ca {
            Some(pem) => RootCerts::from(certificates("the certificate authority", pem)?),
            None => RootCerts::WebPki,
        };
        let tls = TlsConfig::builder().root_certs(roots).client_cert(client).build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_WITHIN))
            .user_agent(concat!("admission-gateway-wasm/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Ok(Self { agent, url: url.trim_end_matches('/').to_owned(), token })
    }

    fn authorized<B>(&self, request: RequestBuilder<B>) -> Result<RequestBuilder<B>, Refusal> {
        let request = request.header("Accept", "application/json");
        let token = match &self.token {
            Token::Absent => return Ok(request),
            Token::Fixed(token) => token.clone(),
            Token::File(file) => {
                let read = bytes(file).map_err(|text| Refusal { status: 0, text })?;
                String::from_utf8_lossy(&read).trim().to_owned()
            }
        };
        Ok(request.header("Authorization", format!("Bearer {token}")))
    }

    /// Returns the JSON of a path with its query, which has at most `limit` bytes.
    pub fn get(&self, path: &str, deadline: Instant, limit: usize) -> Result<Value, Refusal> {
        let request = self.authorized(self.agent.get(format!("{}{path}", self.url)))?;
        let request = request.config().timeout_global(Some(left(deadline)?)).build();
        answer(request.call(), limit)
    }

    /// Sends JSON to a path, and returns what is answered.
    pub fn post(&self, path: &str, body: &Value, deadline: Instant, limit: usize) -> Result<Value, Refusal> {
        let request = self.authorized(self.agent.post(format!("{}{path}", self.url)))?;
        let request = request.header("Content-Type", "application/json");
        let request = request.config().timeout_global(Some(left(deadline)?)).build();
        answer(request.send(body.to_string()), limit)
    }

    /// Begins a watch that ends within `longest`.
    pub fn watch(&self, path: &str, longest: Duration) -> Result<BodyReader<'static>, Refusal> {
        let request = self.authorized(self.agent.get(format!("{}{path}", self.url)))?;
        let found = request.config().timeout_global(Some(longest)).build().call();
        let response = found.map_err(|error| failed(&error))?;
        if response.status().as_u16() != 200 {
            answer(Ok(response), MAX_REASON * 100)?;
            return Err(Refusal { status: 0, text: "the watch was not answered as one".to_owned() });
        }
        Ok(response.into_body().into_with_config().limit(u64::MAX).reader())
    }
}

fn left(deadline: Instant) -> Result<Duration, Refusal> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Refusal { status: 0, text: "the time of the evaluation has passed".to_owned() });
    }
    Ok(left)
}

fn failed(error: &ureq::Error) -> Refusal {
    Refusal { status: 0, text: format!("the API server does not answer: {error}") }
}

fn answer(found: Result<ureq::http::Response<Body>, ureq::Error>, limit: usize) -> Result<Value, Refusal> {
    let mut response = found.map_err(|error| failed(&error))?;
    let status = response.status().as_u16();
    let read = response.body_mut().with_config().limit(limit as u64).read_to_vec();
    let body = read.map_err(|error| match error {
        ureq::Error::BodyExceedsLimit(_) => {
            Refusal { status: 0, text: format!("the answer of the API server has more than {limit} bytes") }
        }
        other => failed(&other),
    })?;
    let json = serde_json::from_slice::<Value>(&body);
    if (200..300).contains(&status) {
        let problem = match json {
            Ok(found @ Value::Object(_)) => return Ok(found),
            Ok(_) => "found no object".to_owned(),
            Err(error) => error.to_string(),
        };
        return Err(Refusal { status: 0, text: format!("the API server's answer: {problem}") });
    }
    let reason = json.ok().and_then(|one| one["message"].as_str().map(str::to_owned)).unwrap_or_default();
    let reason: String = reason.chars().take(MAX_REASON).collect();
    Err(Refusal { status, text: format!("the API server answers {status}: {reason}") })
}

fn bytes(file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|error| format!("{}: {error}", file.display()))
}

fn certificates(what: &str, pem: &[u8]) -> Result<Vec<Certificate<'static>>, String> {
    let mut found = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(one) = item.map_err(|error| format!("{what}: {error}"))? {
            found.push(one);
        }
    }
    if found.is_empty() { Err(format!("{what} has no certificate (PEM)")) } else { Ok(found) }
}

/// Returns the entry of this name in a list of a kubeconfig.
fn entry<'a>(config: &'a Value, list: &str, member: &str, name: &str) -> Result<&'a Value, String> {
    let all = config[list].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = all.iter().find(|one| one["name"] == name).map(|one| &one[member]);
    let found = found.ok_or_else(|| format!("{list}: there is no entry '{name}'"))?;
    let refused = UNKNOWN.iter().find(|field| !matches!(found[**field], Value::Null | Value::Bool(false)));
    match refused {
        Some(field) => Err(format!("{list} '{name}': {field} is not supported")),
        None => Ok(found),
    }
}

/// Returns what a field of a kubeconfig has: as base64 in `FIELD-data`, or in a file.
fn content(entry: &Value, field: &str, folder: &Path) -> Result<Option<Vec<u8>>, String> {
    if let Some(text) = entry[format!("{field}-data")].as_str() {
        let decoded = BASE64_STANDARD.decode(text.trim());
        return decoded.map(Some).map_err(|error| format!("{field}-data: {error}"));
    }
    entry[field].as_str().map(|path| bytes(&folder.join(path))).transpose()
}

fn of_file(file: &Path) -> Result<Connection, String> {
    let config: Value = serde_yaml_ng::from_slice(&fs::read(file).map_err(|error| error.to_string())?)
        .map_err(|error| error.to_string())?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let current = config["current-context"].as_str().ok_or("current-context is required")?;
    let context = entry(&config, "contexts", "context", current)?;
    let of = |member: &str| context[member].as_str().unwrap_or_default();
    let cluster = entry(&config, "clusters", "cluster", of("cluster"))?;
    let user = entry(&config, "users", "user", of("user"))?;
    let url = cluster["server"].as_str().ok_or("clusters: server is required")?;
    let ca = content(cluster, "certificate-authority", folder)?;
    let pair = (content(user, "client-certificate", folder)?, content(user, "client-key", folder)?);
    let client = match pair {
        (Some(chain), Some(key)) => {
            let key = PrivateKey::from_pem(&key).map_err(|error| format!("client-key: {error}"))?;
            Some(ClientCert::new_with_certs(&certificates("client-certificate", &chain)?, key))
        }
        (None, None) => None,
        _ => return Err("users: client-certificate and client-key belong together".to_owned()),
    };
    let token = match (user["token"].as_str(), user["tokenFile"].as_str()) {
        (_, Some(path)) => Token::File(folder.join(path)),
        (Some(token), None) => Token::Fixed(token.to_owned()),
        (None, None) => Token::Absent,
    };
    Connection::made(url, ca.as_deref(), client, token)
}
