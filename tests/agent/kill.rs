//! Killed at any moment, the agent leaves no file, no process and no listener.

use std::time::{Duration, Instant};

use nasgauge::fleet::agent::wire::{Answer, Port, Request, Service};
use nasgauge::servers::processes;

use crate::harness::{HERE, MOMENT, Raw, closes, listens, names};
use crate::paths::plan;

/// Processes below this one.
fn family(root: i32) -> Vec<i32> {
    let all = processes::all();
    let mut family = vec![root];
    loop {
        let more: Vec<i32> = all
            .iter()
            .filter(|process| process.lives() && family.contains(&process.parent))
            .map(|process| process.pid)
            .filter(|pid| !family.contains(pid))
            .collect();
        if more.is_empty() {
            return family;
        }
        family.extend(more);
    }
}

fn all_gone(pids: &[i32]) {
    let deadline = Instant::now() + MOMENT;
    let left = || {
        let mut all = processes::all();
        all.retain(|process| process.lives() && pids.contains(&process.pid));
        all
    };
    while !left().is_empty() {
        assert!(Instant::now() < deadline, "still there: {:?}", left());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn killed_at_any_moment_nothing_of_it_is_left() {
    let base = tempfile::tempdir().expect("a directory");
    let path = base.path().display().to_string();
    for moment in 0..40_u32 {
        let mut raw = Raw::greeted(&["--allow", &path, "--allow-write"]);
        raw.ask(Request::Storage(Box::new(plan(
            base.path(),
            "rw='randrw' bs='4k' size='32M' lanes=2 iodepth=2 runtime='30s'",
        ))));
        let port = raw.ask(Request::Port(Port {
            service: Service::Iperf3,
            address: HERE,
            port: None,
            peer: HERE,
            seconds: 60,
        }));
        let mut address = None;
        if moment % 2 == 1 {
            // With the port open; else in the middle of making things.
            let tell = loop {
                let tell = raw.hear();
                if tell.id == port {
                    break tell;
                }
            };
            let Answer::Listening(number) = tell.answer else {
                panic!("{:?}", tell.answer);
            };
            address = Some(std::net::SocketAddr::new(HERE, number));
        }
        std::thread::sleep(Duration::from_micros(u64::from(moment * moment) * 150));
        let pids = family(raw.process.id().cast_signed());
        raw.process.kill().expect("killed");
        raw.process.wait().expect("ended");
        all_gone(&pids[1..]);
        if let Some(address) = address {
            closes(address, MOMENT);
        }
        assert_eq!(names(base.path()), [""; 0], "moment {moment}");
    }
}

#[test]
fn an_agent_whose_input_closes_takes_its_work_with_it() {
    let base = tempfile::tempdir().expect("a directory");
    let path = base.path().display().to_string();
    let mut raw = Raw::greeted(&["--allow", &path, "--allow-write"]);
    raw.ask(Request::Storage(Box::new(plan(
        base.path(),
        "rw='write' bs='64k' size='32M' runtime='30s'",
    ))));
    // At work, as it says each second.
    assert_eq!(raw.hear().answer, Answer::Working);
    let pids = family(raw.process.id().cast_signed());
    assert!(pids.len() > 1, "a process of its own");
    raw.input = None;
    assert_eq!(raw.ended(), (Some(0), String::new()));
    all_gone(&pids);
    assert_eq!(names(base.path()), [""; 0]);
}

#[test]
fn a_request_s_process_that_is_killed_is_told_and_the_agent_lives() {
    let base = tempfile::tempdir().expect("a directory");
    let path = base.path().display().to_string();
    let mut raw = Raw::greeted(&["--allow", &path, "--allow-write"]);
    let id = raw.ask(Request::Storage(Box::new(plan(
        base.path(),
        "rw='write' bs='64k' size='32M' runtime='30s'",
    ))));
    assert_eq!(raw.hear().answer, Answer::Working);
    let pids = family(raw.process.id().cast_signed());
    let worker = rustix::process::Pid::from_raw(pids[1]).expect("a process");
    rustix::process::kill_process(worker, rustix::process::Signal::KILL).expect("killed");
    let told = loop {
        let tell = raw.hear();
        if tell.answer.last() {
            break tell;
        }
    };
    assert_eq!(told.id, id);
    let Answer::Failed(error) = told.answer else {
        panic!("{:?}", told.answer);
    };
    assert!(error.message.contains("signal 9"), "{error}");
    raw.ask(Request::Facts);
    assert!(matches!(raw.hear().answer, Answer::Facts(_)));
}

#[test]
fn a_process_that_hangs_is_ended_at_its_deadline_with_its_port() {
    let mut raw = Raw::greeted(&[]);
    let opened = Instant::now();
    raw.ask(Request::Port(Port {
        service: Service::Iperf3,
        address: HERE,
        port: None,
        peer: HERE,
        seconds: 2,
    }));
    let Answer::Listening(number) = raw.hear().answer else {
        panic!("no port");
    };
    let address = std::net::SocketAddr::new(HERE, number);
    let pids = family(raw.process.id().cast_signed());
    let worker = rustix::process::Pid::from_raw(pids[1]).expect("a process");
    // A library that never comes back looks like this.
    rustix::process::kill_process(worker, rustix::process::Signal::STOP).expect("stopped");
    assert!(listens(address));
    let told = raw.hear();
    let Answer::Failed(error) = told.answer else {
        panic!("{:?}", told.answer);
    };
    assert!(error.message.contains("not done in its time"), "{error}");
    assert!(
        opened.elapsed() < Duration::from_secs(2) + MOMENT,
        "{:?}",
        opened.elapsed()
    );
    closes(address, MOMENT);
    all_gone(&pids[1..]);
}
