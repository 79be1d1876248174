//! `nasgauge targets`: what a host offers, each as a URI to paste; nothing is written.

use std::collections::BTreeMap;

use clap::Args;
use serde::Serialize;

use super::{Format, Global, credentials};
use crate::discover::{self, Answer, Request};
use crate::error::{Error, Phase, Result};
use crate::spec::uri::TargetSpec;
use crate::target::{Offer, Secret};
use crate::units::Bytes;

/// Arguments of `targets`.
#[derive(Debug, Args)]
pub(super) struct TargetsArgs {
    /// A name, an IPv4 address, or an IPv6 address (with or without brackets)
    host: String,
    /// For SMB shares, and for iSCSI targets that want a user: `NAME` or `DOMAIN;NAME`; asks for the password
    #[arg(long, value_name = "[DOMAIN;]NAME")]
    user: Option<String>,
    /// Also hidden and administrative shares, printers and the like
    #[arg(long)]
    all: bool,
    /// The NFS port, where it is not the one that the portmapper tells
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    nfs_port: Option<u16>,
    /// The port of NFS's MOUNT service, where the portmapper does not tell it
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    mount_port: Option<u16>,
    /// The SMB port [default: 445]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    smb_port: Option<u16>,
    /// The iSCSI port [default: 3260]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    iscsi_port: Option<u16>,
    /// The iperf3 port [default: 5201]; a server started for one test (-1) takes the question for it
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    iperf3_port: Option<u16>,
}

/// A line of CSV: one thing that was found.
#[derive(Serialize)]
struct Line<'a> {
    protocol: &'a str,
    what: &'a str,
    name: &'a str,
    uri: Option<&'a str>,
    accessible: Option<bool>,
    size_bytes: Option<u64>,
    free_bytes: Option<u64>,
    notes: String,
}

/// JSON for standard output.
#[derive(Serialize)]
struct Found<'a> {
    host: &'a str,
    servers: Vec<Server<'a>>,
}

#[derive(Serialize)]
struct Server<'a> {
    protocol: &'a str,
    port: u16,
    /// Empty where none answers.
    offers: &'a [Offer],
    /// Why there are none.
    error: Option<String>,
}

/// The command.
pub(super) fn main(args: &TargetsArgs, global: &Global) -> Result<u8> {
    let request = request(args, global)?;
    let answers = discover::ask(&request);
    match global.format {
        Format::Json => println!("{}", json(&request.host, &answers)),
        Format::Csv => {
            print!("{}", csv(&answers)?);
            if !global.quiet {
                for line in misses(&answers) {
                    eprintln!("{line}");
                }
            }
        }
        Format::Table => print!("{}", table(&answers)),
    }
    Ok(u8::from(answers.iter().all(|answer| answer.found.is_err())))
}

fn request(args: &TargetsArgs, global: &Global) -> Result<Request> {
    let host = host_of(&args.host)?;
    let (domain, user) = match &args.user {
        None => (None, None),
        Some(user) => match user.split_once([';', '\\']) {
            Some((domain, user)) => (Some(domain.to_owned()), Some(user.to_owned())),
            None => (None, Some(user.clone())),
        },
    };
    let secret = match &user {
        None => Secret::default(),
        Some(name) if name.is_empty() || name.contains([':', '%']) => {
            let message = "--user takes a name alone; the password is asked for, or comes from NASGAUGE_PASSWORD or --credentials FILE";
            return Err(Error::usage(message));
        }
        Some(_) => {
            let spec = TargetSpec {
                user: user.clone(),
                hosts: vec![host.clone()],
                ..TargetSpec::default()
            };
            credentials::secret(&spec, global.credentials.as_deref())?
        }
    };
    let ports = [
        ("nfs", args.nfs_port),
        ("smb", args.smb_port),
        ("iscsi", args.iscsi_port),
        ("iperf3", args.iperf3_port),
    ];
    let named = ports
        .into_iter()
        .filter_map(|(name, port)| Some((name, port?)));
    Ok(Request {
        host,
        ports: named.collect::<BTreeMap<_, _>>(),
        mount_port: args.mount_port,
        domain,
        user,
        secret,
        hidden: args.all,
    })
}

/// The host without brackets; a sentence where it is something else.
fn host_of(text: &str) -> Result<String> {
    let inner = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let host = inner.unwrap_or(text);
    let address = host
        .split('%')
        .next()
        .unwrap_or("")
        .parse::<std::net::Ipv6Addr>();
    let wrong = if host.contains("://") || host.contains(['/', '@', '?', ',']) {
        Some("give the host alone: nasgauge targets nas")
    } else if host.contains([':', '[', ']']) && address.is_err() {
        Some(
            "give the host alone; a port goes into --nfs-port, --mount-port, --smb-port, --iscsi-port or --iperf3-port",
        )
    } else if host.is_empty() || host.contains(char::is_whitespace) || host.contains('\0') {
        Some("that is no host")
    } else {
        None
    };
    match wrong {
        Some(advice) => Err(Error::usage(format!("'{}': {advice}", plain(text)))),
        None => Ok(host.to_owned()),
    }
}

/// What did not answer, a line each; one in all for a host that is not there.
fn misses(answers: &[Answer]) -> Vec<String> {
    let unknown = |answer: &Answer| {
        answer
            .found
            .as_ref()
            .is_err_and(|error| error.phase == Phase::Resolve)
    };
    let lines = answers
        .iter()
        .filter_map(Answer::why_not)
        .map(|line| plain(&line));
    if answers.iter().all(unknown) {
        return lines.take(1).collect();
    }
    lines.collect()
}

/// What a peer said, without what would move a terminal's cursor.
fn plain(text: &str) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(shown).collect()
}

/// In quotes where a shell would take a character for something else; a composed URI holds none itself.
fn quoted(uri: &str) -> String {
    if uri.contains(['?', '&', ';', '[', '*']) {
        format!("'{uri}'")
    } else {
        uri.to_owned()
    }
}

fn offers(answers: &[Answer]) -> impl Iterator<Item = (&Answer, &Offer)> {
    answers.iter().flat_map(|answer| {
        let offers = answer.found.as_deref().unwrap_or_default();
        offers.iter().map(move |offer| (answer, offer))
    })
}

/// Kind, size, free space, and last, since it may be long, the URI; notes below what they belong to.
fn table(answers: &[Answer]) -> String {
    let size =
        |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |bytes| Bytes(bytes).to_string());
    let mut rows = vec![(
        ["what", "size", "free", "URI"].map(str::to_owned),
        String::new(),
    )];
    for (_, offer) in offers(answers) {
        let uri = offer.uri.as_deref();
        let place = uri.map_or_else(|| plain(&offer.name), quoted);
        let notes: Vec<String> = offer.notes.iter().map(|note| plain(note)).collect();
        let (all, free) = (size(offer.size_bytes), size(offer.free_bytes));
        rows.push(([offer.what.to_owned(), all, free, place], notes.join("; ")));
    }
    if rows.len() == 1 {
        rows.clear();
    }
    let width = |column: usize| {
        let widths = rows.iter().map(|(cells, _)| cells[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let [what, size, free] = [0, 1, 2].map(width);
    let mut text = String::new();
    for ([a, b, c, uri], notes) in &rows {
        let line = format!("{a:<what$}  {b:>size$}  {c:>free$}  {uri}");
        text.push_str(line.trim_end());
        text.push('\n');
        if !notes.is_empty() {
            text.push_str(&format!("{:what$}  {notes}\n", ""));
        }
    }
    let misses = misses(answers);
    if !rows.is_empty() && !misses.is_empty() {
        text.push('\n');
    }
    for line in misses {
        text.push_str(&format!("{line}\n"));
    }
    text
}

fn csv(answers: &[Answer]) -> Result<String> {
    let failed =
        |error: &dyn std::fmt::Display| Error::usage(format!("could not write CSV: {error}"));
    let mut writer = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(Vec::new());
    // By hand, so that it stands there when nothing follows.
    let head = [
        "protocol",
        "what",
        "name",
        "uri",
        "accessible",
        "size_bytes",
        "free_bytes",
        "notes",
    ];
    writer.write_record(head).map_err(|error| failed(&error))?;
    for (answer, offer) in offers(answers) {
        let line = Line {
            protocol: answer.protocol,
            what: offer.what,
            name: &offer.name,
            uri: offer.uri.as_deref(),
            accessible: offer.accessible,
            size_bytes: offer.size_bytes,
            free_bytes: offer.free_bytes,
            notes: offer.notes.join("; "),
        };
        writer.serialize(line).map_err(|error| failed(&error))?;
    }
    let bytes = writer.into_inner().map_err(|error| failed(&error))?;
    String::from_utf8(bytes).map_err(|error| failed(&error))
}

fn json(host: &str, answers: &[Answer]) -> String {
    let servers = answers.iter().map(|answer| Server {
        protocol: answer.protocol,
        port: answer.port,
        offers: answer.found.as_deref().unwrap_or_default(),
        error: answer.why_not(),
    });
    let found = Found {
        host,
        servers: servers.collect(),
    };
    serde_json::to_string_pretty(&found).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn a_host_is_one_and_nothing_else() {
        for (text, host) in [
            ("nas", "nas"),
            ("10.0.0.7", "10.0.0.7"),
            ("[::1]", "::1"),
            ("fe80::1%eth0", "fe80::1%eth0"),
            ("[fe80::1%eth0]", "fe80::1%eth0"),
        ] {
            assert_eq!(host_of(text).expect(text), host);
        }
        for (text, word) in [
            ("nfs://nas/x", "host alone"),
            ("me@nas", "host alone"),
            ("nas/x", "host alone"),
            ("nas:2049", "--nfs-port"),
            ("[::1]:2049", "--nfs-port"),
            ("", "no host"),
            ("a b", "no host"),
        ] {
            let error = host_of(text).expect_err(text);
            assert_eq!(error.kind, Kind::Usage, "{text}");
            assert!(error.message.contains(word), "{text}: {error}");
        }
    }

    fn answers() -> Vec<Answer> {
        let mut offer = Offer::new("NFS export", "/a b", "nfs://h/a%20b?mountport=1".to_owned());
        offer.size_bytes = Some(1 << 30);
        offer.note("only \u{1b}[31m10.0.0.0/24, x");
        let refused = Error::new(Phase::Connect, Kind::Refused, "no");
        vec![
            Answer {
                protocol: "nfs",
                server: "NFS server",
                port: 2049,
                found: Ok(vec![offer]),
            },
            Answer {
                protocol: "smb",
                server: "SMB server",
                port: 445,
                found: Err(refused),
            },
        ]
    }

    #[test]
    fn the_table_is_for_shells_and_terminals() {
        let text = table(&answers());
        assert!(text.contains("'nfs://h/a%20b?mountport=1'"), "{text}");
        assert!(
            text.contains("1 GiB") && text.contains("only ?[31m10.0.0.0/24"),
            "{text}"
        );
        assert!(
            text.ends_with("\nno SMB server answers on port 445 (refused)\n"),
            "{text}"
        );
    }

    #[test]
    fn csv_and_json_hold_what_was_found() {
        let answers = answers();
        let text = csv(&answers).expect("writes");
        let mut lines = csv::Reader::from_reader(text.as_bytes());
        assert_eq!(lines.headers().expect("a head").len(), 8);
        let line = lines.records().next().expect("one").expect("sound");
        assert_eq!(
            (&line[3], &line[4], &line[5]),
            ("nfs://h/a%20b?mountport=1", "", "1073741824")
        );
        let value: serde_json::Value = serde_json::from_str(&json("h", &answers)).expect("JSON");
        assert_eq!(value["servers"][0]["offers"][0]["size_bytes"], 1_u64 << 30);
        assert_eq!(value["servers"][0]["error"], serde_json::Value::Null);
        assert!(
            value["servers"][1]["error"]
                .as_str()
                .is_some_and(|why| why.contains("refused"))
        );
        assert!(
            csv(&[])
                .expect("writes")
                .starts_with("protocol,what,name,uri"),
            "a head at least"
        );
    }

    #[test]
    fn an_unknown_host_is_told_once() {
        let unknown = || Answer {
            protocol: "nfs",
            server: "NFS server",
            port: 1,
            found: Err(Error::new(Phase::Resolve, Kind::NotFound, "no such host")),
        };
        assert_eq!(misses(&[unknown(), unknown()]), ["no such host"]);
    }
}
