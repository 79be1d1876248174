//! Tests of readings that agree, and of those that don't.

use super::*;
use crate::recompute::number::Writing;
use crate::recompute::session::read;

fn one(text: &str) -> Checked {
    let mut readings = read(text, Writing::default()).expect("readable").readings;
    assert_eq!(readings.len(), 1, "{text}: {readings:?}");
    check(readings.remove(0))
}

fn megabytes(done: &Checked) -> f64 {
    done.rate.expect("a rate").best / 1e6
}

#[test]
fn a_tool_whose_parts_agree_has_the_finer_rate() {
    let dd = one("10737418240 bytes (11 GB) copied, 38.6415 s, 278 MB/s");
    assert_eq!(dd.status, Status::Agrees);
    assert!((megabytes(&dd) - 277.8727).abs() < 1e-3);
    let lftp = one("4442654720 bytes transferred in 8 seconds (502.77M/s)");
    assert!((megabytes(&lftp) - 527.19).abs() < 0.01);
    let said = lftp.sentences.join("; ");
    assert!(
        said.contains("8.427 s") && said.contains("522.7 to 592.4 MB/s"),
        "{said}"
    );
    let rsync = one("   4442654720 100%  234.90MB/s    0:00:18 (xfer#1, to-check=0/1)");
    assert!((megabytes(&rsync) - 246.31).abs() < 0.01);
    assert!(
        rsync.sentences.join("; ").contains("18.04 s"),
        "{:?}",
        rsync.sentences
    );
    // rsync cuts the seconds off, so this time does not contradict the other unit.
    let note = rsync.unit_note.expect("said");
    assert!(
        note.contains("18.91 s") && !note.contains("contradicts"),
        "{note}"
    );
}

#[test]
fn a_clock_read_as_minutes_is_named() {
    let done = one("52046502432 bytes in 1:47.07 is: 568889KB/s");
    assert_eq!(done.status, Status::Disagrees);
    assert!((megabytes(&done) - 486.098).abs() < 1e-3);
    assert_eq!(
        done.sentences[0],
        "1:47.07 was read as 1.47 minutes and 49000 used for 49,635 MiB: 486.1 MB/s, not 568,889 KB/s (+19.8 %)"
    );
}

#[test]
fn minutes_that_look_like_a_clock_are_questioned() {
    let done = one("Downloading 49000MB for 1.47 minutes is: 568889KB/s.");
    assert_eq!(done.status, Status::Questioned);
    let said = done.sentences.join("; ");
    assert!(said.contains("49000MB and 568889KB/s by 1024"), "{said}");
    assert!(said.contains("1:47") && said.contains("107 s"), "{said}");
    let alone = one("52046502432 bytes in 1.47 min");
    assert_eq!(alone.status, Status::Questioned);
}

#[test]
fn mistakes_with_units_are_explained() {
    let cases = [
        ("100 GB in 1000 s: 100 Mb/s", "bytes were taken for bits"),
        ("100 GB in 1000 s: 800 MB/s", "bits were taken for bytes"),
        ("1000 MB in 10 s: 6000 MB/s", "it is per minute"),
    ];
    for (text, words) in cases {
        let done = one(text);
        assert_eq!(done.status, Status::Disagrees, "{text}");
        assert!((megabytes(&done) - 100.0).abs() < 1e-6, "{text}");
        assert!(
            done.sentences[0].starts_with(words),
            "{text}: {:?}",
            done.sentences
        );
    }
    let pair = one("1119 MB/s (9.39 Gbit/s)");
    assert_eq!(pair.status, Status::Disagrees);
    assert!((megabytes(&pair) - 1173.4).abs() < 1.0);
    assert!(
        pair.sentences[0].contains("agree only with 1119 MB/s by 1024"),
        "{:?}",
        pair.sentences
    );
    assert_eq!(one("841MiB/s (881MB/s)").status, Status::Stated);
}

#[test]
fn sums_are_added_up() {
    let good = one("7.54 + 9.58 + 9.56 + 7.56 + 7.33 + 9.53 + 9.50 + 7.35 = 67.95 Gbit/s");
    assert_eq!(good.status, Status::Agrees);
    let said = &good.sentences[0];
    for word in [
        "67.95 Gbit/s together",
        "8.49 Gbit/s each",
        "4 of 7.33 Gbit/s to 7.56 Gbit/s",
        "4 of 9.50 Gbit/s to 9.58 Gbit/s",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let bad = one("9.57 + 9.52 = 29.09 Gbit/s");
    assert_eq!(bad.status, Status::Disagrees);
    assert!(
        bad.sentences[1].contains("not 29.09 Gbit/s"),
        "{:?}",
        bad.sentences
    );
}

#[test]
fn operations_and_rate_are_compared() {
    let good = one("  SEQ    1MiB (Q=  8, T= 1):   384.064 MB/s [    366.3 IOPS] < 21765.43 us>");
    assert_eq!(good.status, Status::Agrees);
    assert!(
        good.sentences.iter().any(|said| said.starts_with("max: ")),
        "{:?}",
        good.sentences
    );
    let bad = one("  RND    4KiB (Q= 32, T= 1):   384.064 MB/s [    366.3 IOPS] < 21765.43 us>");
    assert_eq!(bad.status, Status::Disagrees);
}

#[test]
fn a_time_of_zero_has_no_rate() {
    let done = one("5 GB in 0 s");
    assert_eq!((done.rate, done.status), (None, Status::Computed));
    assert!(
        done.sentences[0].contains("at least"),
        "{:?}",
        done.sentences
    );
}

#[test]
fn a_comma_that_may_be_either_is_said() {
    let done = one("52 GB in 1,234 s");
    assert!(
        done.sentences
            .iter()
            .any(|said| said.contains("--decimal-comma")),
        "{:?}",
        done.sentences
    );
}
