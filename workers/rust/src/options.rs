//! The command line of a worker.

use std::collections::HashSet;
use std::fmt;
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

/// An option of the program's own.
pub(crate) struct Flag {
    pub(crate) name: String,
    /// Empty: it has none.
    pub(crate) value: String,
    pub(crate) usage: String,
    pub(crate) set: Box<dyn FnMut(String) -> Result<(), String> + Send>,
}

impl fmt::Debug for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Flag").field(&self.name).finish()
    }
}

/// What there is to do instead of serving.
#[derive(Debug)]
pub(crate) enum Instead {
    Help(String),
    BadUsage(String),
}

/// Returns the text of `--help`.
fn help(program: &str, flags: &[Flag]) -> String {
    let text = format!(
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
    );
    flags.iter().fold(text, |text, Flag { name, value, usage, .. }| {
        let head = format!("{name} {value}");
        let gap = if head.len() > 18 { "\n                     " } else { "" };
        format!("{text}  {head:<18}{}{usage}\n", if gap.is_empty() { " " } else { gap })
    })
}

/// Reads the command line, the program's name first; sets the program's own `flags`.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = String>,
    flags: &mut [Flag],
) -> Result<Options, Instead> {
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
            "--help" | "-h" => return Err(Instead::Help(help(&program, flags))),
            "--listen" => listen.push(address(value()?)?),
            "--tls-cert" => cert = Some(value()?),
            "--tls-key" => key = Some(value()?),
            "--client-ca" => client_ca = Some(value()?),
            "--metrics-listen" => metrics_listen = Some(metrics_address(value()?)?),
            "--grace" => grace = seconds(&value()?)?,
            _ => {
                let Some(flag) = flags.iter_mut().find(|flag| flag.name == name) else {
                    let text = format!("there is no option {name}; --help tells which there are");
                    return Err(Instead::BadUsage(text));
                };
                let given = match (flag.value.is_empty(), &inline) {
                    (true, None) => String::new(),
                    (true, Some(_)) => {
                        return Err(Instead::BadUsage(format!("{name} takes no value")));
                    }
                    (false, _) => value()?,
                };
                let set = (flag.set)(given);
                set.map_err(|problem| Instead::BadUsage(format!("{name}: {problem}")))?;
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
        parse(std::iter::once("worker").chain(line.split_whitespace()).map(str::to_owned), &mut [])
    }

    #[test]
    fn a_program_has_options_of_its_own() {
        let (send, given) = std::sync::mpsc::channel();
        let flag = |name: &str, value: &str| {
            let (send, own) = (send.clone(), name.to_owned());
            let set = move |text: String| match text.as_str() {
                "bad" => Err("is no folder".to_owned()),
                _ => send.send(format!("{own}={text}")).map_err(|gone| gone.to_string()),
            };
            let usage = "one line".to_owned();
            Flag { name: name.to_owned(), value: value.to_owned(), usage, set: Box::new(set) }
        };
        let mut flags = [flag("--policies", "DIR"), flag("--cluster", ""), flag("--longer-than-others", "X")];
        let mut parsed = |line: &str| {
            parse(std::iter::once("worker").chain(line.split_whitespace()).map(str::to_owned), &mut flags)
        };
        let found = parsed("--policies a --grace 1 --cluster --policies=b").expect("good usage");
        assert_eq!(found.grace, Duration::from_secs(1));
        assert_eq!(given.try_iter().collect::<Vec<_>>(), ["--policies=a", "--cluster=", "--policies=b"]);
        for (line, text) in [
            ("--policies bad", "--policies: is no folder"),
            ("--policies", "followed by its value"),
            ("--cluster=yes", "--cluster takes no value"),
        ] {
            let Err(Instead::BadUsage(found)) = parsed(line) else { panic!("{line} is good") };
            assert!(found.contains(text), "{found}");
        }
        let Err(Instead::Help(text)) = parsed("-h") else { panic!("no help") };
        let own = "  --policies DIR     one line\n  --cluster          one line\n  --longer-than-others X\n                     \
             one line\n";
        assert!(text.ends_with(own), "{text}");
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
