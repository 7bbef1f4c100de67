//! Listening addresses and their sockets.

use std::fmt;
use std::io;
use std::net::ToSocketAddrs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, UnixListener};

use crate::serving::StartError;

/// Size of sun_path on Linux, 108, less the terminating zero.
const MAX_UNIX_PATH_BYTES: usize = 107;

/// HOST:PORT, or a unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// The host without brackets; port 0 for any free one.
    Tcp(String, u16),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// Parses `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`, or says why it is none.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return unix_address(text, path);
        }
        let none = || format!("'{text}' is not an address: HOST:PORT, [IPV6]:PORT or unix:PATH is expected");
        let (host, port) = text.rsplit_once(':').ok_or_else(none)?;
        let host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(inner) if inner.contains(':') && inner.chars().all(|c| is_name(c) || "%:".contains(c)) => {
                inner
            }
            None if !host.is_empty() && host.chars().all(|c| is_name(c) || c == '-') => host,
            _ => return Err(none()),
        };
        let is_number = (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
        match port.parse() {
            Ok(number) if is_number => Ok(Self::Tcp(host.to_owned(), number)),
            _ => Err(none()),
        }
    }
}

fn is_name(character: char) -> bool {
    character.is_alphanumeric() || "_.".contains(character)
}

fn unix_address(text: &str, path: &str) -> Result<Address, String> {
    // unix:///run/w.sock is gRPC's other way to say unix:/run/w.sock.
    let path = match path.strip_prefix("//") {
        Some(rest) => format!("/{}", rest.trim_start_matches('/')),
        None => path.to_owned(),
    };
    if path.is_empty() {
        return Err(format!("'{text}' has no path: unix:PATH is expected"));
    }
    if path.len() > MAX_UNIX_PATH_BYTES {
        return Err(format!(
            "'{text}' is too long: a unix socket's path has at most {MAX_UNIX_PATH_BYTES} bytes"
        ));
    }
    Ok(Address::Unix(path.into()))
}

/// A bound socket.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The file of a unix socket, which is removed when nothing listens there any more.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    /// Removes the file, unless another worker has replaced it.
    fn drop(&mut self) {
        if std::fs::metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Binds an address; returns the one that was bound, with the port that was chosen.
pub(crate) async fn bind(address: &Address) -> Result<(Listener, Address, Option<SocketFile>), StartError> {
    let failed = |error: io::Error| StartError::new(format!("{address}: {}", said(&error)));
    match address {
        Address::Tcp(host, port) => {
            let target = (host.as_str(), *port).to_socket_addrs().map_err(failed)?.next();
            let target = target.ok_or_else(|| StartError::new(format!("{address}: no such host")))?;
            let listener = TcpListener::bind(target).await.map_err(failed)?;
            let port = listener.local_addr().map_err(failed)?.port();
            Ok((Listener::Tcp(listener), Address::Tcp(host.clone(), port), None))
        }
        Address::Unix(path) => {
            clear(address, path).await?;
            let listener = UnixListener::bind(path).map_err(failed)?;
            let inode = std::fs::metadata(path).map_err(failed)?.ino();
            let file = SocketFile { path: path.clone(), inode };
            Ok((Listener::Unix(listener), address.clone(), Some(file)))
        }
    }
}

/// Removes a stale socket file.
async fn clear(address: &Address, path: &Path) -> Result<(), StartError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().as_bytes().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(StartError::new(format!("{address}: there is no folder {}", folder.display())));
    }
    let Ok(found) = std::fs::metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(StartError::new(format!("{address}: the file exists and is not a socket")));
    }
    match tokio::net::UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let _ = std::fs::remove_file(path);
            Ok(())
        }
        Err(error) => Err(StartError::new(format!("{address}: {}", said(&error)))),
        Ok(_) => Err(StartError::new(format!("{address}: Address already in use"))),
    }
}

/// The text of an error of the system, without the number that Rust puts behind it.
pub(crate) fn said(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error ") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for text in ["127.0.0.1:0", "localhost:50051", "[::1]:65535", "unix:w.sock", "unix:/run/w.sock"] {
            assert_eq!(Address::parse(text).expect("an address").to_string(), text);
        }
        assert_eq!(Address::parse("unix:///run/w.sock").expect("one").to_string(), "unix:/run/w.sock");
    }

    #[test]
    fn what_is_no_address_is_told() {
        for text in
            ["", "50051", "host", ":1", "::1:1", "[host]:1", "host:65536", "host:x", "host:+1", "a b:1"]
        {
            let problem = Address::parse(text).expect_err(text);
            assert!(problem.contains("is not an address"), "{problem}");
        }
        assert!(Address::parse("unix:").expect_err("no path").contains("has no path"));
        let long = format!("unix:/{}", "x".repeat(107));
        assert!(Address::parse(&long).expect_err("long").contains("too long"));
    }
}
