//! TLS: PEM files to what rustls serves with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::listen::said;
use crate::serving::StartError;

/// PEM files to serve TLS with.
///
/// They are read at the start: replace the worker to replace them.
#[derive(Clone, Debug)]
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

impl Tls {
    /// The certificate chain and its private key.
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { cert: cert.into(), key: key.into(), client_ca: None }
    }

    /// Requires client certificates of this CA.
    #[must_use]
    pub fn client_ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.client_ca = Some(path.into());
        self
    }

    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, StartError> {
        let (cert, key) = (self.cert.display(), self.key.display());
        let pair = |problem: String| {
            StartError::new(format!("{cert} and {key} are not a PEM certificate and its key: {problem}"))
        };
        let chain = certificates(&self.cert)?.map_err(pair)?;
        let secret = PrivateKeyDer::from_pem_slice(&read(&self.key)?).map_err(|e| pair(e.to_string()))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| pair(e.to_string()))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let none = |problem: String| {
                    StartError::new(format!("{} holds no PEM certificate: {problem}", path.display()))
                };
                let mut roots = RootCertStore::empty();
                for root in certificates(path)?.map_err(none)? {
                    roots.add(root).map_err(|e| none(e.to_string()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|e| none(e.to_string()))?)
            }
        };
        let mut config = builder.with_single_cert(chain, secret).map_err(|e| pair(e.to_string()))?;
        // gRPC requires it.
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, StartError> {
    std::fs::read(path).map_err(|error| StartError::new(format!("{}: {}", path.display(), said(&error))))
}

/// The certificates of a file; the inner error says why there are none.
fn certificates(path: &Path) -> Result<Result<Vec<CertificateDer<'static>>, String>, StartError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    Ok(match found {
        Ok(certificates) if certificates.is_empty() => Err("there is none in it".to_owned()),
        other => other.map_err(|error| error.to_string()),
    })
}
