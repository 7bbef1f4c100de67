//! TLS and mTLS with real certificates.

use std::path::PathBuf;
use std::time::Duration;

use admission_gateway_worker::{Review, Server, Serving, Tls, json};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::gateway::{ask, client_of};

/// A folder with a CA and certificates that it signed; removed when dropped.
struct Certificates {
    folder: PathBuf,
    authority: Issuer<'static, KeyPair>,
    ca: String,
}

impl Certificates {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("worker-tls-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).expect("a certificate").pem();
        std::fs::write(folder.join("ca.pem"), &ca).expect("written");
        Self { folder, authority: Issuer::new(params, key), ca }
    }

    fn signed(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        let cert = params.signed_by(&key, &self.authority).expect("a certificate");
        (cert.pem(), key.serialize_pem())
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    fn tls(&self) -> Tls {
        let (cert, key) = self.signed("localhost");
        Tls::new(self.file("cert.pem", &cert), self.file("key.pem", &key))
    }

    async fn connect(
        &self,
        serving: &Serving,
        identity: Option<Identity>,
    ) -> Result<Channel, tonic::transport::Error> {
        let mut config =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca)).domain_name("localhost");
        if let Some(identity) = identity {
            config = config.identity(identity);
        }
        let address = format!("https://{}", serving.addresses()[0]);
        Endpoint::from_shared(address).expect("one").tls_config(config).expect("good PEM").connect().await
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn server() -> Server {
    Server::new().policy("allows", "", |_: &mut Review| {}).listen("127.0.0.1:0")
}

#[tokio::test]
async fn tls_is_served_to_who_trusts_it_and_plain_text_to_nobody() {
    let certificates = Certificates::new("tls");
    let serving = server().tls(certificates.tls()).start().await.expect("it starts");
    let mut client = client_of(certificates.connect(&serving, None).await.expect("a connection"));
    assert!(ask(&mut client, "allows", &json!({})).await.expect("an answer").allowed);
    let stranger = Certificates::new("stranger");
    assert!(stranger.connect(&serving, None).await.is_err());
    let plain = Endpoint::from_shared(format!("http://{}", serving.addresses()[0])).expect("one");
    if let Ok(channel) = plain.connect().await {
        ask(&mut client_of(channel), "allows", &json!({})).await.expect_err("no plain text");
    }
    serving.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn with_a_client_ca_only_who_it_signed_gets_in() {
    let certificates = Certificates::new("mtls");
    let tls = certificates.tls().client_ca(certificates.folder.join("ca.pem"));
    let serving = server().tls(tls).start().await.expect("it starts");
    let ours = certificates.signed("gateway");
    let theirs = Certificates::new("theirs").signed("gateway");
    for (identity, gets_in) in [(Some(ours), true), (Some(theirs), false), (None, false)] {
        let identity = identity.map(|(cert, key)| Identity::from_pem(cert, key));
        // A client learns that its certificate is refused from its first call at the latest.
        let answer = match certificates.connect(&serving, identity).await {
            Ok(channel) => ask(&mut client_of(channel), "allows", &json!({})).await.is_ok(),
            Err(_) => false,
        };
        assert_eq!(answer, gets_in);
    }
    serving.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn files_that_are_none_are_told() {
    let certificates = Certificates::new("files");
    let (cert, key) = certificates.signed("localhost");
    let (_, other_key) = certificates.signed("localhost");
    let cert = certificates.file("cert.pem", &cert);
    let key = certificates.file("key.pem", &key);
    let other_key = certificates.file("other.pem", &other_key);
    let empty = certificates.file("empty.pem", "");
    let missing = certificates.folder.join("missing.pem");
    let problem = async |tls: Tls| server().tls(tls).start().await.expect_err("no start").to_string();
    let text = problem(Tls::new(&missing, &key)).await;
    assert_eq!(text, format!("{}: No such file or directory", missing.display()));
    for tls in [Tls::new(&empty, &key), Tls::new(&cert, &empty), Tls::new(&cert, &other_key)] {
        let text = problem(tls).await;
        assert!(text.contains("are not a PEM certificate and its key: "), "{text}");
    }
    let text = problem(Tls::new(&cert, &key).client_ca(&key)).await;
    assert_eq!(text, format!("{} holds no PEM certificate: there is none in it", key.display()));
}
