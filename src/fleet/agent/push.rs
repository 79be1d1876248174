//! `--agent ssh:[user@]host[:port]`: the static program goes there through ssh's own input, runs, and is gone.
//!
//! `push.sh` finds a directory that may execute and takes the file; the agent unlinks itself at once when it runs. ssh may
//! ask for a password or a host's key on the terminal. Must not know: what is asked of the agent.

use std::time::Duration;

use super::binary;
use super::channel::Channel;
use crate::clock::monotonic_ns;
use crate::error::{Error, Kind, Phase, Result};
use crate::payload::mix;

const SCRIPT: &str = include_str!("push.sh");
/// What its answers begin with.
const MARK: &str = "nasgauge-push ";
/// The scheme of `--agent` values that are no commands.
const SCHEME: &str = "ssh:";
/// How long the first answer may take: ssh may ask for a password.
const LOGIN: Duration = Duration::from_mins(2);
/// How long the program may take on its way: 10 MB over a slow line.
const TRANSFER: Duration = Duration::from_mins(2);

/// Where to, and what the agent may do there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// `user@host` or `host`, as ssh takes it.
    host: String,
    port: Option<u16>,
    /// Words after the host: options of the agent.
    options: Vec<String>,
}

/// Whether an `--agent` value is such a place, and which: `ssh:admin@nas:22 --allow /tank`.
pub(super) fn parse(words: &[String]) -> Result<Option<Place>> {
    let Some((first, options)) = words.split_first() else {
        return Ok(None);
    };
    let Some(rest) = first.strip_prefix(SCHEME) else {
        return Ok(None);
    };
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let wrong = |why: &str| {
        Error::usage(format!(
            "--agent {first}: {why}; write ssh:[user@]host[:port], an IPv6 address in brackets"
        ))
    };
    let (user, address) = rest
        .rsplit_once('@')
        .map_or((None, rest), |(user, address)| (Some(user), address));
    let (host, port) = match address.strip_prefix('[') {
        Some(literal) => {
            let (host, after) = literal
                .split_once(']')
                .ok_or_else(|| wrong("the bracket is not closed"))?;
            match after.strip_prefix(':') {
                None if after.is_empty() => (host, None),
                Some(port) => (host, Some(port)),
                None => return Err(wrong("there is something between the bracket and the port")),
            }
        }
        // More than one colon without brackets is an IPv6 address.
        None if address.matches(':').count() == 1 => {
            let (host, port) = address.split_once(':').unwrap_or((address, ""));
            (host, Some(port))
        }
        None => (address, None),
    };
    let port = port
        .map(|port| port.parse::<u16>().ok().filter(|port| *port > 0))
        .map(|port| port.ok_or_else(|| wrong("the port is no number")))
        .transpose()?;
    if host.is_empty() || user.is_some_and(str::is_empty) {
        return Err(wrong("there is no host or user"));
    }
    // ssh would take them for its own options.
    if host.starts_with('-') || user.is_some_and(|user| user.starts_with('-')) {
        return Err(wrong("a name may not begin with '-'"));
    }
    Ok(Some(Place {
        host: user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}")),
        port,
        options: options.to_vec(),
    }))
}

/// The script on one line, without comments: some login shells take no line breaks inside quotation marks.
fn one_line() -> String {
    let mut line = String::new();
    for part in SCRIPT.lines().map(str::trim) {
        if part.is_empty() || part.starts_with('#') {
            continue;
        }
        line.push_str(part);
        let open = ["then", "do", "else"]
            .iter()
            .any(|word| part.ends_with(word));
        line.push_str(if open { " " } else { "; " });
    }
    line.trim_end_matches([' ', ';']).to_owned()
}

/// The words of the ssh command for a program of this machine and size.
fn command(place: &Place, machine: &str, bytes: usize, name: &str) -> Result<Vec<String>> {
    let bytes = bytes.to_string();
    let script = one_line();
    let fixed = ["sh", "-c", &script, "nasgauge", machine, &bytes, name];
    let words = fixed
        .into_iter()
        .chain(place.options.iter().map(String::as_str));
    let line = shlex::try_join(words)
        .map_err(|_| Error::usage("an option of the agent holds a NUL character"))?;
    let mut ssh: Vec<String> = vec!["ssh".to_owned(), "-T".to_owned()];
    if let Some(port) = place.port {
        ssh.extend(["-p".to_owned(), port.to_string()]);
    }
    ssh.extend([place.host.clone(), line]);
    Ok(ssh)
}

/// Sends the agent and starts it; what the channel says next is its greeting.
pub(super) fn start(place: &Place, name: &str) -> Result<Channel> {
    let binary = binary::find().map_err(|error| error.at(name))?;
    let own = u64::from(std::process::id());
    let directory = format!(
        "nasgauge-agent-{:016x}",
        mix(monotonic_ns() ^ mix(own << 32))
    );
    let words = command(place, binary.machine, binary.bytes.len(), &directory)?;
    let mut channel = Channel::start(&words, name)?;
    let what = "the answer of the script that takes the agent";
    let line = channel.line(LOGIN, what)?;
    let text = String::from_utf8_lossy(&line).into_owned();
    match text
        .strip_prefix(MARK)
        .and_then(|text| text.split_once(' '))
    {
        Some(("go", _)) => {
            channel.send(binary.bytes, TRANSFER)?;
            Ok(channel)
        }
        Some(("machine", machine)) => Err(other_machine(machine, binary.machine).at(name)),
        None if text == format!("{MARK}noexec") => {
            let message = "none of /tmp, /var/tmp, /dev/shm and the home directory there lets a program run (they are \
                           mounted noexec, or full); put nasgauge somewhere else by hand and name it: \
                           --agent \"ssh host /path/to/nasgauge agent\"";
            Err(Error::new(Phase::Connect, Kind::Denied, message).at(name))
        }
        _ => Err(channel.nonsense(&line, what)),
    }
}

fn other_machine(theirs: &str, ours: &str) -> Error {
    let theirs: String = theirs
        .chars()
        .filter(|c| !c.is_control())
        .take(60)
        .collect();
    let message = format!(
        "that computer is {theirs}, and the agent at hand is for Linux {ours}; where nothing of ours can run, use an \
         iperf3 server there instead"
    );
    Error::new(Phase::Connect, Kind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;

    fn place(text: &str) -> Result<Option<Place>> {
        parse(&shlex::split(text).expect("words"))
    }

    #[test]
    fn a_place_is_told_from_a_command() {
        let host = |text: &str| {
            let place = place(text).expect(text).expect(text);
            (place.host, place.port)
        };
        assert_eq!(host("ssh:nas"), ("nas".into(), None));
        assert_eq!(host("ssh:admin@nas:2222"), ("admin@nas".into(), Some(2222)));
        assert_eq!(host("ssh://admin@nas"), ("admin@nas".into(), None));
        assert_eq!(
            host("ssh:root@[fd00::1]:22"),
            ("root@fd00::1".into(), Some(22))
        );
        assert_eq!(host("ssh:fd00::1"), ("fd00::1".into(), None));
        let with = place("ssh:nas --allow '/tank/a b'")
            .expect("fine")
            .expect("a place");
        assert_eq!(with.options, ["--allow", "/tank/a b"]);
        assert_eq!(place("ssh nas nasgauge agent"), Ok(None));
        assert_eq!(place(""), Ok(None));
        for text in [
            "ssh:",
            "ssh:@nas",
            "ssh:nas:",
            "ssh:nas:0",
            "ssh:nas:x",
            "ssh:-oProxyCommand=x",
            "ssh:-oProxyCommand=x@nas",
            "ssh:[fd00::1",
            "ssh:[fd00::1]22",
        ] {
            assert_eq!(place(text).expect_err(text).kind, Kind::Usage);
        }
    }

    #[test]
    fn the_script_is_one_line_that_any_login_shell_hands_on() {
        let line = one_line();
        assert!(!line.contains(['\n', '\'']), "{line}");
    }

    /// Runs the script as ssh would, on a stand-in for the agent; `home` is the only directory that it can use.
    fn push(
        shell: &[&str],
        machine: &str,
        agent: &str,
        cut: usize,
        home: &Path,
    ) -> (String, String) {
        let place = Place {
            host: "host".into(),
            port: None,
            options: vec!["--allow".into(), "/a 'b".into()],
        };
        let words = command(&place, machine, agent.len(), "nasgauge-agent-test").expect("words");
        // Directories of this computer are not to be used.
        let line = words
            .last()
            .expect("a line")
            .replace("/tmp /var/tmp /dev/shm ", "");
        let mut child = Command::new(shell[0])
            .args(&shell[1..])
            .arg("-c")
            .arg(line)
            .env("HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut input = child.stdin.take().expect("a pipe");
        let _ = input.write_all(&agent.as_bytes()[..cut]);
        drop(input);
        let (mut out, mut err) = (String::new(), String::new());
        child
            .stdout
            .take()
            .expect("a pipe")
            .read_to_string(&mut out)
            .expect("text");
        child
            .stderr
            .take()
            .expect("a pipe")
            .read_to_string(&mut err)
            .expect("text");
        child.wait().expect("ended");
        (out, err)
    }

    const AGENT: &str = "#!/bin/sh\nfor word do printf '<%s>' \"$word\"; done\nls \"$HOME\"\n";

    #[test]
    fn the_script_runs_what_it_takes_and_leaves_nothing() {
        let uname = rustix::system::uname();
        let machine = uname.machine().to_str().expect("text");
        let home = tempfile::tempdir().expect("a directory");
        let (out, err) = push(&["sh"], machine, AGENT, AGENT.len(), home.path());
        assert!(out.starts_with("nasgauge-push go "), "{out} {err}");
        assert!(
            out.contains("<agent><--remove-itself><--allow></a 'b>"),
            "{out} {err}"
        );
        assert_eq!(std::fs::read_dir(home.path()).expect("listed").count(), 0);
        // Cut short: nothing runs, nothing stays.
        let (out, err) = push(&["sh"], machine, AGENT, 10, home.path());
        assert!(
            !out.contains('<') && err.contains("did not arrive whole"),
            "{out} {err}"
        );
        assert_eq!(std::fs::read_dir(home.path()).expect("listed").count(), 0);
        let (out, _) = push(&["sh"], "armv7l", AGENT, AGENT.len(), home.path());
        assert!(out.starts_with("nasgauge-push machine Linux "), "{out}");
        // Nothing can be made there.
        let file = home.path().join("file");
        std::fs::write(&file, "").expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("set");
        let (out, _) = push(&["sh"], machine, AGENT, AGENT.len(), &file);
        assert_eq!(out, "nasgauge-push noexec\n");
    }
}
