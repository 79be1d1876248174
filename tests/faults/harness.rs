//! One run of the program: started, watched, ended, and checked for what must hold of every run.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nasgauge::servers::processes;
use rustix::process::{Pid, Signal};

/// The password of every server here; it may appear nowhere.
pub const SECRET: &str = "tell-nobody-17xy";
/// How long anything may take that only waits for a program or a server of ours to come up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Columns of summary.csv that are empty unless a row is whole.
const HEADLINES: &[&str] = &["throughput_bytes_per_s", "iops", "durable_bytes_per_s"];

/// Flags of each run that does not give its own.
const COMMON: [[&str; 2]; 4] = [
    ["--settle", "0s"],
    ["--connect-timeout", "2s"],
    ["--timeout", "2s"],
    ["--interval", "100ms"],
];

/// A line of a CSV file by its columns' names.
pub type Line = HashMap<String, String>;

/// Numbers of seconds, for bounds.
pub const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A running nasgauge with a directory of its own for all that it makes on this computer.
pub struct Running {
    child: Child,
    started: Instant,
    place: tempfile::TempDir,
    out: PathBuf,
}

/// A nasgauge that has ended.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub rows: Vec<Line>,
    pub took: Duration,
    pub out: PathBuf,
    /// Holds `out`.
    place: tempfile::TempDir,
}

/// `nasgauge run` with short timeouts, an output directory and the password in its environment.
pub fn run(args: &[&str]) -> Running {
    Start::new(args).run()
}

/// Any command, to its end.
pub fn command(args: &[&str]) -> Ended {
    Start::new(args).raw().ends(PATIENCE)
}

/// `nasgauge clean URI --yes`, which must succeed.
pub fn clean(uri: &str) -> Ended {
    let ended = command(&["clean", uri, "--yes"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended
}

/// How a program is to be started.
pub struct Start<'a> {
    args: Vec<&'a str>,
    out: Option<&'a Path>,
    password: Option<&'a str>,
    user: Option<&'a str>,
}

impl<'a> Start<'a> {
    pub fn new(args: &[&'a str]) -> Self {
        Self {
            args: args.to_vec(),
            out: None,
            password: Some(SECRET),
            user: None,
        }
    }

    /// Results go there instead.
    pub fn out(mut self, out: &'a Path) -> Self {
        self.out = Some(out);
        self
    }

    /// Another password, or none.
    pub fn password(mut self, password: Option<&'a str>) -> Self {
        self.password = password;
        self
    }

    /// As another user of this computer, without any privilege.
    pub fn user(mut self, user: &'a str) -> Self {
        self.user = Some(user);
        self
    }

    /// `nasgauge run` with short timeouts.
    pub fn run(self) -> Running {
        let mut args = self.args;
        for pair in COMMON {
            if !args.contains(&pair[0]) {
                args.extend(pair);
            }
        }
        args.insert(0, "run");
        let place = tempfile::tempdir().expect("new");
        let out = self
            .out
            .map_or_else(|| place.path().join("out"), Path::to_owned);
        let text = out.to_str().expect("plain").to_owned();
        args.extend(["--out", &text]);
        Start { args, ..self }.spawn(place, out)
    }

    /// The arguments as they are.
    pub fn raw(self) -> Running {
        let place = tempfile::tempdir().expect("new");
        let out = place.path().join("out");
        self.spawn(place, out)
    }

    fn spawn(self, place: tempfile::TempDir, out: PathBuf) -> Running {
        let program = env!("CARGO_BIN_EXE_nasgauge");
        let mut command = match self.user {
            None => Command::new(program),
            Some(user) => {
                open_to_all(place.path());
                let mut command = Command::new("setpriv");
                let group = format!("--regid={user}");
                let user = format!("--reuid={user}");
                command.args([
                    &user,
                    &group,
                    "--clear-groups",
                    "--inh-caps=-all",
                    "--",
                    program,
                ]);
                command
            }
        };
        let temporary = place.path().join("tmp");
        std::fs::create_dir(&temporary).expect("new");
        open_to_all(&temporary);
        let file = |name: &str| File::create(place.path().join(name)).expect("new");
        command
            .args(&self.args)
            .current_dir(place.path())
            .env("TMPDIR", temporary)
            .env("RUST_BACKTRACE", "1")
            .env_remove("NASGAUGE_PASSWORD")
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"));
        if let Some(password) = self.password {
            command.env("NASGAUGE_PASSWORD", password);
        }
        let started = Instant::now();
        let child = command.spawn().expect("starts");
        Running {
            child,
            started,
            place,
            out,
        }
    }
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("ours");
}

impl Running {
    /// What it has said so far.
    pub fn stderr(&self) -> String {
        text(&self.place.path().join("stderr"))
    }

    /// The rows so far.
    pub fn rows(&self) -> Vec<Line> {
        lines(&self.out.join("summary.csv"))
    }

    /// Its process number.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Waits until it has said `words`.
    pub fn until_it_says(&self, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.stderr().contains(words) {
            assert!(
                Instant::now() < deadline,
                "never said '{words}': {}",
                self.stderr()
            );
            assert!(
                processes::all()
                    .iter()
                    .any(|one| one.pid == self.pid() && one.lives()),
                "ended before it said '{words}': {}",
                self.stderr()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until a target is under measurement for the `repeat`th time.
    pub fn until_measuring(&self, uri: &str, repeat: u32) {
        self.until_moved(uri, repeat, 2);
    }

    /// Waits until something has moved there in so many intervals of the `repeat`th time.
    pub fn until_moved(&self, uri: &str, repeat: u32, intervals: usize) {
        let deadline = Instant::now() + PATIENCE;
        let repeat = repeat.to_string();
        let moving =
            |line: &Line| line["target"] == uri && line["repeat"] == repeat && line["ops"] != "0";
        while lines(&self.out.join("intervals.csv"))
            .iter()
            .filter(|line| moving(line))
            .count()
            < intervals
        {
            assert!(
                Instant::now() < deadline,
                "{uri} was never measured: {}",
                self.stderr()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid()).expect("a process");
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// Its children's process numbers.
    pub fn children(&self) -> Vec<i32> {
        let all = processes::all();
        let own = all
            .iter()
            .filter(|one| one.parent == self.pid() && one.lives());
        own.map(|one| one.pid).collect()
    }

    /// Waits for its end, which must come within this time from now, and checks what holds of every run.
    pub fn ends(self, within: Duration) -> Ended {
        let ended = self.killed(within);
        let homes = std::fs::read_dir(ended.place.path().join("tmp")).expect("ours");
        assert_eq!(homes.count(), 0, "temporary files stay");
        ended
    }

    /// The same where it had no time to tidy up.
    pub fn killed(mut self, within: Duration) -> Ended {
        let asked = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("ours") {
                break status;
            }
            assert!(
                asked.elapsed() < within,
                "still running after {within:?}; it said: {}",
                self.stderr()
            );
            std::thread::sleep(Duration::from_millis(10));
        };
        let took = asked.elapsed();
        let place = std::mem::replace(&mut self.place, tempfile::tempdir().expect("new"));
        let ended = Ended {
            code: status.code(),
            stdout: text(&place.path().join("stdout")),
            stderr: text(&place.path().join("stderr")),
            rows: lines(&self.out.join("summary.csv")),
            took,
            out: self.out.clone(),
            place,
        };
        eprintln!(
            "{:?} in all, {took:?} to the end:\n{}",
            self.started.elapsed(),
            ended.stderr
        );
        ended.check();
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl std::fmt::Debug for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "exit code {:?} after {:?}; it said:\n{}{}",
            self.code, self.took, self.stdout, self.stderr
        )
    }
}

impl Ended {
    /// What holds of every run.
    fn check(&self) {
        assert!(!self.stderr.contains("panicked at"), "{self:?}");
        assert!(!self.shows(SECRET), "the secret shows: {self:?}");
        for row in &self.rows {
            let whole = row["status"] == "ok";
            // What was measured until the user stopped it is no failure.
            let counts = whole || row["status"] == "interrupted";
            for column in HEADLINES.iter().filter(|_| !counts) {
                assert_eq!(row[*column], "", "a headline in a row that failed: {row:?}");
            }
            assert!(!whole || row["errors"] == "0", "{row:?}");
        }
    }

    /// Whether a word stands in any output or file.
    pub fn shows(&self, word: &str) -> bool {
        let files = files_below(self.place.path());
        let mut contents = files.iter().map(|file| std::fs::read(file).expect("ours"));
        contents.any(|content| {
            content
                .windows(word.len())
                .any(|part| part == word.as_bytes())
        })
    }

    /// One line of standard error that holds all these words.
    pub fn says(&self, words: &[&str]) -> &Self {
        let found = self
            .stderr
            .lines()
            .any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "no line says {words:?}: {self:?}");
        self
    }

    pub fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// The statuses of a protocol's rows, in order.
    pub fn statuses(&self, protocol: &str) -> Vec<&str> {
        let own = self.rows.iter().filter(|row| row["protocol"] == protocol);
        own.map(|row| row["status"].as_str()).collect()
    }

    /// The statuses are these.
    pub fn has(&self, protocol: &str, statuses: &[&str]) -> &Self {
        assert_eq!(self.statuses(protocol), statuses, "{protocol}: {self:?}");
        self
    }

    /// Nothing was measured and nothing written.
    pub fn touched_nothing(&self) -> &Self {
        assert!(self.rows.is_empty(), "{:?}", self.rows);
        self.exits(2)
    }
}

/// The lines of a CSV file; none when there is no file.
pub fn lines(path: &Path) -> Vec<Line> {
    let Ok(mut reader) = csv::Reader::from_path(path) else {
        return Vec::new();
    };
    // A line that is being written is not whole yet.
    reader.deserialize().map_while(Result::ok).collect()
}

/// All files below a directory.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![directory.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => todo.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
