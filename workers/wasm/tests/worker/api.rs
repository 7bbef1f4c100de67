//! A small API server over TLS, which answers as a test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread;

use admission_gateway_worker::{Value, json, serde_json};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::folder::Folder;

pub const TOKEN: &str = "secret-token";

/// A request that came.
#[derive(Clone, Debug)]
pub struct Request {
    pub line: String,
    pub authorization: String,
    pub body: String,
}

/// What is answered.
pub enum Reply {
    Json(u16, Value),
    /// Events of a watch, until the sender is dropped.
    Events(Receiver<Value>),
    /// Nothing.
    Silence,
}

type Answering = dyn Fn(&Request) -> Reply + Send + Sync;

pub struct Api {
    port: u16,
    ca: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Api {
    /// Starts it; its threads end with the process.
    pub fn new(answering: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let names = vec!["127.0.0.1".to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .expect("a good pair");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (config, requests) = (Arc::new(config), Arc::<Mutex<Vec<Request>>>::default());
        let (answering, seen): (Arc<Answering>, _) = (Arc::new(answering), Arc::clone(&requests));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, answering, seen) =
                    (Arc::clone(&config), Arc::clone(&answering), Arc::clone(&seen));
                thread::spawn(move || {
                    let connection = ServerConnection::new(config).expect("TLS");
                    serve(StreamOwned::new(connection, stream), &*answering, &seen)
                });
            }
        });
        Self { port, ca: cert.pem(), requests }
    }

    /// The kubeconfig with this user, as a file of the folder.
    pub fn kubeconfig(&self, folder: &Folder, user: Value) -> PathBuf {
        let cluster = json!({
            "server": format!("https://127.0.0.1:{}", self.port),
            "certificate-authority-data": BASE64_STANDARD.encode(&self.ca),
        });
        let config = json!({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        });
        folder.write("kubeconfig", config.to_string());
        folder.0.join("kubeconfig")
    }

    /// The lines of all requests until now, without the version.
    pub fn lines(&self) -> Vec<String> {
        self.requests.lock().expect("whole").iter().map(|one| one.line.clone()).collect()
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("whole").clone()
    }
}

type Stream = StreamOwned<ServerConnection, TcpStream>;

/// Answers the requests of one connection, one after another. `None`: it ended.
fn serve(stream: Stream, answering: &Answering, seen: &Mutex<Vec<Request>>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).ok().filter(|length| *length > 0)?;
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let header = |name: &str| {
            let found = lines.iter().find_map(|line| {
                let (key, value) = line.split_once(": ")?;
                key.eq_ignore_ascii_case(name).then(|| value.to_owned())
            });
            found.unwrap_or_default()
        };
        let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
        stream.read_exact(&mut body).ok()?;
        let request = Request {
            line: lines[0].trim_end_matches(" HTTP/1.1").to_owned(),
            authorization: header("authorization"),
            body: String::from_utf8(body).expect("UTF-8"),
        };
        seen.lock().expect("whole").push(request.clone());
        let answer = answering(&request);
        let stream = stream.get_mut();
        match answer {
            Reply::Json(status, body) => {
                let text = body.to_string();
                write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{text}", text.len()).ok()?;
            }
            Reply::Events(events) => {
                write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").ok()?;
                stream.flush().ok()?;
                for event in events {
                    let text = format!("{event}\n");
                    write!(stream, "{:x}\r\n{text}\r\n", text.len()).ok()?;
                    stream.flush().ok()?;
                }
                write!(stream, "0\r\n\r\n").ok()?;
            }
            Reply::Silence => thread::park(),
        }
        stream.flush().ok()?;
    }
}

/// A Status, as API servers answer what they refuse.
pub fn refusal(code: u16, message: &str) -> Reply {
    Reply::Json(code, json!({"kind": "Status", "code": code, "message": message}))
}

/// An object of version v1 in the namespace a.
pub fn object(kind: &str, name: &str) -> Value {
    let metadata = json!({
        "name": name, "namespace": "a", "managedFields": [{"manager": "m"}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "k": "v"},
    });
    json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": {"x": "1", "y": "2"}})
}

/// What discovery says of these kinds: kind, plural and whether it has namespaces.
pub fn discovery(kinds: &[(&str, &str, bool)]) -> Reply {
    let found: Vec<_> = kinds
        .iter()
        .map(|(kind, plural, namespaced)| json!({"kind": kind, "name": plural, "namespaced": namespaced}))
        .collect();
    Reply::Json(200, json!({"kind": "APIResourceList", "resources": found}))
}

/// JSON that a policy got.
pub fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("JSON")
}
