//! The command line of a worker.

use std::collections::HashSet;
use std::time::Duration;

use crate::listen::Address;
use crate::server::DEFAULT_LISTEN;
use crate::tls::Tls;

/// The gateway's default drain time, and less than the 30 s of a pod's grace period.
pub(crate) const DEFAULT_GRACE: Duration = Duration::from_secs(10);

/// The parsed command line.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) listen: Vec<String>,
    pub(crate) tls: Option<Tls>,
    pub(crate) metrics_listen: Option<String>,
    pub(crate) grace: Duration,
}

/// What there is to do instead of serving.
#[derive(Debug)]
pub(crate) enum Instead {
    Help(String),
    BadUsage(String),
}

/// Returns the text of `--help`.
fn help(program: &str) -> String {
    format!(
        "usage: {program} [options]\n\n\
         Serves admission policies over gRPC.\n\n\
         options:\n  \
         --listen ADDRESS   HOST:PORT or unix:PATH, repeatable; default {DEFAULT_LISTEN}\n  \
         --tls-cert FILE    PEM certificate chain to serve with\n  \
         --tls-key FILE     its private key\n  \
         --client-ca FILE   let in only clients that it signed\n  \
         --metrics-listen HOST:PORT\n                     \
         serve Prometheus metrics over plain HTTP; off by default\n  \
         --grace SECONDS    for calls in flight when told to stop; default {}\n  \
         --help             show this\n",
        DEFAULT_GRACE.as_secs()
    )
}

/// Reads the command line, the program's name first.
pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Options, Instead> {
    let mut arguments = arguments.into_iter();
    let program = arguments.next().unwrap_or_else(|| "worker".to_owned());
    let (mut listen, mut metrics_listen, mut grace) = (Vec::new(), None, DEFAULT_GRACE);
    let (mut cert, mut key, mut client_ca) = (None, None, None);
    while let Some(argument) = arguments.next() {
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.to_owned())),
            _ => (argument, None),
        };
        let mut value = || {
            inline.clone().or_else(|| arguments.next()).ok_or_else(|| {
                Instead::BadUsage(format!("{name} is to be followed by its value; --help tells more"))
            })
        };
        match name.as_str() {
            "--help" | "-h" => return Err(Instead::Help(help(&program))),
            "--listen" => listen.push(address(value()?)?),
            "--tls-cert" => cert = Some(value()?),
            "--tls-key" => key = Some(value()?),
            "--client-ca" => client_ca = Some(value()?),
            "--metrics-listen" => metrics_listen = Some(metrics_address(value()?)?),
            "--grace" => grace = seconds(&value()?)?,
            _ => {
                return Err(Instead::BadUsage(format!(
                    "there is no option {name}; --help tells which there are"
                )));
            }
        }
    }
    let has_unix = listen.iter().any(|text| text.starts_with("unix:"));
    let tls = match (cert, key, client_ca) {
        (Some(_), Some(_), _) if has_unix => {
            let text = "TLS is for HOST:PORT; a unix: socket is guarded by the permissions of its folder";
            return Err(Instead::BadUsage(text.to_owned()));
        }
        (Some(cert), Some(key), None) => Some(Tls::new(cert, key)),
        (Some(cert), Some(key), Some(ca)) => Some(Tls::new(cert, key).client_ca(ca)),
        (None, None, None) => None,
        (None, None, Some(_)) => {
            return Err(Instead::BadUsage("--client-ca needs --tls-cert and --tls-key".to_owned()));
        }
        _ => return Err(Instead::BadUsage("--tls-cert and --tls-key go together".to_owned())),
    };
    if listen.iter().collect::<HashSet<_>>().len() != listen.len() {
        return Err(Instead::BadUsage("--listen names the same address twice".to_owned()));
    }
    Ok(Options { listen, tls, metrics_listen, grace })
}

fn address(text: String) -> Result<String, Instead> {
    match Address::parse(&text) {
        Ok(_) => Ok(text),
        Err(problem) => Err(Instead::BadUsage(format!("--listen: {problem}"))),
    }
}

fn metrics_address(text: String) -> Result<String, Instead> {
    match crate::metrics::parse(&text) {
        Ok(_) => Ok(text),
        Err(problem) => Err(Instead::BadUsage(format!("--metrics-listen: {problem}"))),
    }
}

fn seconds(text: &str) -> Result<Duration, Instead> {
    let number = text.trim().parse::<f64>().ok();
    number
        .and_then(|number| Duration::try_from_secs_f64(number).ok())
        .ok_or_else(|| Instead::BadUsage(format!("--grace: '{text}' is not a number of seconds")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, Instead> {
        parse(std::iter::once("worker").chain(line.split_whitespace()).map(str::to_owned))
    }

    fn problem(line: &str) -> String {
        match parsed(line) {
            Err(Instead::BadUsage(text)) => text,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn all_options_are_taken() {
        let found = parsed(
            "--listen 127.0.0.1:0 --listen=[::1]:1 --grace 0.5 --tls-cert c --tls-key=k --client-ca a",
        );
        let found = found.expect("good usage");
        assert_eq!(found.listen, ["127.0.0.1:0", "[::1]:1"]);
        assert_eq!(found.grace, Duration::from_millis(500));
        assert!(found.tls.is_some());
        let found = parsed("").expect("good usage");
        assert!(found.listen.is_empty() && found.tls.is_none());
        assert_eq!(found.grace, Duration::from_secs(10));
    }

    #[test]
    fn bad_usage_is_told() {
        assert!(problem("--listen").contains("followed by its value"));
        assert!(problem("--listen host").contains("is not an address"));
        assert!(problem("--metrics-listen unix:a").contains("--metrics-listen: HOST:PORT is expected"));
        assert!(problem("--port 1").contains("no option --port"));
        assert!(problem("serve").contains("no option serve"));
        assert!(problem("--tls-cert c").contains("go together"));
        assert!(problem("--client-ca c").contains("needs --tls-cert"));
        assert!(problem("--listen unix:a --tls-cert c --tls-key k").contains("TLS is for HOST:PORT"));
        assert!(problem("--listen a:1 --listen a:1").contains("twice"));
        for odd in ["-1", "x", "inf", "nan"] {
            assert!(problem(&format!("--grace {odd}")).contains("not a number of seconds"));
        }
    }

    #[test]
    fn help_names_every_option() {
        let Err(Instead::Help(text)) = parsed("--help") else { panic!("no help") };
        for option in
            ["--listen", "--tls-cert", "--tls-key", "--client-ca", "--metrics-listen", "--grace", "--help"]
        {
            assert!(text.contains(option));
        }
    }
}
