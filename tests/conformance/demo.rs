//! The demo ends with every row ok, and nothing of it is left.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::lab;
use super::program::Results;

/// Every protocol with its four rows.
fn assert_complete(results: &Path) {
    let results = Results::read(results);
    results.check();
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &results.rows {
        *rows.entry(&row["protocol"]).or_default() += 1;
    }
    let all = [
        ("file", 4),
        ("iscsi", 4),
        ("nfs", 4),
        ("ram", 4),
        ("smb", 4),
    ];
    assert_eq!(rows, BTreeMap::from(all));
}

#[test]
fn embedded() {
    let desk = lab::directory();
    let temporary = lab::below(desk.path(), "tmp");
    let output = Command::new(env!("CARGO_BIN_EXE_nasgauge"))
        .args(["demo", "--quick", "--out", "demo"])
        .current_dir(desk.path())
        .env("TMPDIR", &temporary)
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_complete(&desk.path().join("demo"));
    assert_eq!(std::fs::read_dir(&temporary).expect("there").count(), 0);
    let ports = said.split("127.0.0.1:").skip(1);
    assert!(ports.count() >= 3, "{said}");
    // A port may have been given to somebody else by now; whoever had it would still be at work here.
    let left = nasgauge::servers::processes::all().into_iter().find(|one| {
        let place = std::fs::read_link(format!("/proc/{}/cwd", one.pid));
        one.lives() && place.is_ok_and(|place| place.starts_with(desk.path()))
    });
    assert!(left.is_none(), "{left:?}");
}

/// Takes stock of what a demo could leave, runs it, and takes stock again; in namespaces of its own, so that no other
/// test is seen. The demo is not told that it is in a sandbox: it enters its own.
const STOCK: &str = r#"
stock() {
  cat /proc/[0-9]*/comm 2> /dev/null | grep -vxE 'sh|cat|grep|sort' | sort
  cat /proc/self/mounts
  awk '$4 == "0A" { print $2 }' /proc/net/tcp /proc/net/tcp6 | sort
  ls -A "$TMPDIR" /run /run/nasgauge /dev/shm
  cat /etc/passwd /etc/group
}
until [ -e /run/rpcbind.sock ]; do sleep 0.05; done
stock > before
unset NASGAUGE_SANDBOX
"$1" demo --quick --servers real --out demo
code=$?
stock > after
exit $code
"#;

#[test]
#[ignore = "needs root and servers"]
fn real() {
    let desk = lab::directory();
    let temporary = lab::below(desk.path(), "tmp");
    let output = Command::new("sh")
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/servers/sandbox.sh"
        ))
        .args([
            "enter",
            "sh",
            "-c",
            STOCK,
            "sh",
            env!("CARGO_BIN_EXE_nasgauge"),
        ])
        .current_dir(desk.path())
        .env("TMPDIR", &temporary)
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_complete(&desk.path().join("demo"));
    let stock = |name: &str| std::fs::read_to_string(desk.path().join(name)).expect(name);
    assert!(stock("before").contains("tmpfs"));
    assert_eq!(stock("before"), stock("after"));
}
