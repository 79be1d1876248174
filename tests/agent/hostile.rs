//! Peers that break the protocol on either end: each gets one clear sentence, in bounded time.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use nasgauge::error::{Error, Kind};
use nasgauge::fleet::agent::Agent;
use nasgauge::fleet::agent::wire::{self, Answer, Hello, LINE_MAX, Request, Service};

use crate::harness::{HERE, PATIENCE, PROGRAM, Raw};

/// The error of a command that is no agent, or not for long.
fn refused(command: &str) -> Error {
    let asked = Instant::now();
    let agent = Agent::connect_within(command, Duration::from_secs(2));
    let error = match agent.and_then(|mut agent| agent.facts()) {
        Ok(facts) => panic!("{command}: {facts:?}"),
        Err(error) => error,
    };
    assert!(
        asked.elapsed() < PATIENCE,
        "{command}: {:?}",
        asked.elapsed()
    );
    assert!(error.target.contains("--agent"), "{error}");
    error
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn each_way_in_which_a_command_is_no_agent_has_its_sentence() {
    let hello = String::from_utf8(wire::line(&Hello::own()).expect("a line")).expect("text");
    let hello = format!("printf '%s\\n' '{}'", hello.trim());
    let other = hello.replace(env!("CARGO_PKG_VERSION"), "99.0.0");
    let sh = |script: &str| format!("sh -c {}", shlex::try_quote(script).expect("words"));
    let cases: &[(&str, String, Kind, &[&str])] = &[
        (
            "no such program here",
            "/nonexistent/ssh nas".into(),
            Kind::NotFound,
            &["no program '/nonexistent/ssh'"],
        ),
        ("no words", String::new(), Kind::Usage, &["empty"]),
        (
            "an open quotation mark",
            "ssh 'nas".into(),
            Kind::Usage,
            &["no partner"],
        ),
        (
            "no such program there",
            sh("echo 'sh: nasgauge: not found' >&2; exit 127"),
            Kind::NotFound,
            &["found no such program", "sh: nasgauge: not found"],
        ),
        (
            "not executable there",
            sh("exit 126"),
            Kind::Denied,
            &["can't be executed", "nothing on standard error"],
        ),
        (
            "an exit code of its own",
            sh("echo one >&2; echo two >&2; exit 3"),
            Kind::Gone,
            &["exit code 3", "one / two"],
        ),
        ("a signal", sh("kill -9 $$"), Kind::Gone, &["signal 9"]),
        (
            "a banner",
            sh("echo 'Welcome to NAS'; sleep 60"),
            Kind::Protocol,
            &["\"Welcome to NAS\"", "silent"],
        ),
        (
            "control characters",
            sh("printf '\\033[2Jevil\\n'; sleep 60"),
            Kind::Protocol,
            &["\"[2Jevil\""],
        ),
        (
            "a cut line",
            sh("printf '{\"nasg'; exit 0"),
            Kind::Gone,
            &["exit code 0 in the middle of a line (\"{\"nasg\")"],
        ),
        (
            "an endless line",
            sh("exec tr '\\0' x </dev/zero"),
            Kind::Protocol,
            &["a line of more than"],
        ),
        (
            "silence",
            sh("echo thinking >&2; exec sleep 60"),
            Kind::TimedOut,
            &["did not send the agent's greeting within 2 s", "thinking"],
        ),
        (
            "another version",
            sh(&format!("{other}; sleep 60")),
            Kind::Unsupported,
            &["nasgauge 99.0.0", "the same build"],
        ),
        (
            "a greeting and the end",
            sh(&format!("{hello}; exit 4")),
            Kind::Gone,
            &["exit code 4"],
        ),
        (
            "a greeting and nonsense",
            sh(&format!("{hello}; read a; read b; echo nonsense; sleep 60")),
            Kind::Protocol,
            &["\"nonsense\" where an answer"],
        ),
        (
            "an answer to another question",
            sh(&format!(
                "{hello}; read a; read b; echo '{{\"id\":1,\"answer\":{{\"listening\":1}}}}'; sleep 60"
            )),
            Kind::Protocol,
            &["another question"],
        ),
    ];
    for (what, command, kind, words) in cases {
        let error = refused(command);
        assert_eq!(error.kind, *kind, "{what}: {error}");
        for word in *words {
            assert!(error.message.contains(word), "{what}: {error}");
        }
        assert!(!error.message.contains('\u{1b}'), "{what}");
    }
}

#[test]
fn ssh_s_own_failure_is_told_from_the_agent_s() {
    let base = tempfile::tempdir().expect("a directory");
    let ssh = base.path().join("ssh");
    let script =
        "#!/bin/sh\necho 'ssh: connect to host nas port 22: Connection refused' >&2\nexit 255\n";
    std::fs::write(&ssh, script).expect("written");
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).expect("set");
    let error = refused(&format!("{} nas nasgauge agent", ssh.display()));
    assert!(error.message.contains("ssh itself failed"), "{error}");
    assert!(error.message.contains("Connection refused"), "{error}");
}

#[test]
fn an_agent_that_floods_is_not_kept_in_memory() {
    let hello = String::from_utf8(wire::line(&Hello::own()).expect("a line")).expect("text");
    let working = "{\"id\":77,\"answer\":\"working\"}";
    let script = format!("printf '%s\\n' '{}'; exec yes '{working}'", hello.trim());
    let command = format!("sh -c {}", shlex::try_quote(&script).expect("words"));
    let mut agent = Agent::connect(&command).expect("greeted");
    let asked = Instant::now();
    let error = agent
        .open_port(Service::Iperf3, HERE, HERE, PATIENCE)
        .expect_err("a flood");
    assert_eq!(error.kind, Kind::TimedOut, "{error}");
    assert!(asked.elapsed() < PATIENCE);
}

#[test]
fn each_way_in_which_the_asker_is_hostile_ends_the_agent_in_order() {
    let greeting = wire::line(&Hello::own()).expect("a line");
    let mut other = Hello::own();
    other.nasgauge = "99.0.0".into();
    let other = wire::line(&other).expect("a line");
    let with = |rest: &[u8]| [greeting.as_slice(), rest].concat();
    let cases: &[(&str, Vec<u8>, &str)] = &[
        ("garbage", b"GET / HTTP/1.1\r\n\r\n".to_vec(), "no greeting"),
        ("bytes", vec![0xff; 4096], ""),
        ("another version", other, "99.0.0"),
        ("a huge line", vec![b'x'; LINE_MAX + 2], "without an end"),
        ("no request", with(b"{}\n"), "no request"),
        (
            "an unknown request",
            with(b"{\"id\":1,\"request\":\"rm\"}\n"),
            "no request",
        ),
        ("a cut request", with(b"{\"id\":1,\"req"), ""),
        ("silence", Vec::new(), ""),
    ];
    for (what, bytes, words) in cases {
        let mut raw = Raw::start(&[]);
        raw.say(bytes);
        raw.input = None;
        let (code, errors) = raw.ended();
        let expected = if words.is_empty() { Some(0) } else { Some(1) };
        assert_eq!(code, expected, "{what}: {errors}");
        assert!(errors.contains(words), "{what}: {errors}");
        assert!(!errors.contains("panicked"), "{what}: {errors}");
    }
}

#[test]
fn requests_that_make_no_sense_are_answered_and_the_agent_lives() {
    let mut raw = Raw::greeted(&[]);
    let lines = [
        // A number in use, no time at all, too much time, no address, a peer of another kind.
        r#"{"id":1,"request":{"port":{"service":"iperf3","address":"127.0.0.1","port":null,"peer":"127.0.0.1","seconds":0}}}"#,
        r#"{"id":2,"request":{"port":{"service":"iperf3","address":"127.0.0.1","port":null,"peer":"127.0.0.1","seconds":18446744073709551615}}}"#,
        r#"{"id":3,"request":{"port":{"service":"iperf3","address":"0.0.0.0","port":null,"peer":"127.0.0.1","seconds":5}}}"#,
        r#"{"id":4,"request":{"port":{"service":"iperf3","address":"127.0.0.1","port":null,"peer":"::1","seconds":5}}}"#,
        r#"{"id":5,"request":{"port":{"service":"iperf3","address":"192.0.2.1","port":null,"peer":"127.0.0.1","seconds":5}}}"#,
        r#"{"id":6,"request":"drop_caches"}"#,
    ];
    for (index, line) in lines.iter().enumerate() {
        raw.say(format!("{line}\n").as_bytes());
        let tell = raw.hear();
        assert_eq!(tell.id, index as u64 + 1);
        let Answer::Failed(error) = tell.answer else {
            panic!("{line}: {:?}", tell.answer);
        };
        assert!(!error.message.is_empty());
    }
    raw.ask(Request::Facts);
    assert!(matches!(raw.hear().answer, Answer::Facts(_)));
    // It prints nothing else, and ends when its input does.
    raw.input = None;
    assert_eq!(raw.line(), "");
    assert_eq!(raw.ended(), (Some(0), String::new()));
}

#[test]
fn the_program_says_what_it_is_when_run_by_hand() {
    let output = std::process::Command::new(PROGRAM)
        .args(["agent", "--help"])
        .output()
        .expect("the program");
    let help = String::from_utf8_lossy(&output.stdout);
    assert!(
        help.contains("--allow <PATH>") && help.contains("Not run by hand"),
        "{help}"
    );
    assert!(!help.contains("remove-itself"), "{help}");
}
