//! Keeps the house: floors, who may name whom, who may print, fail or be unsafe. Reads the sources as text.
//!
//! Each rule is a function from a [`Source`] to findings, listed in [`RULES`]; code of unit tests is left out of all but
//! the first. What a rule allows by exception stands in a table here, with its reason.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Which module stands on which floor: it uses lower ones, and on its own floor what [`NEIGHBOURS`] names.
const FLOORS: &[(u32, &[&str])] = &[
    (0, &["units", "op", "error", "clock", "slots"]),
    (
        1,
        &[
            "payload",
            "pattern",
            "stats",
            "record",
            "spec",
            "line",
            "iperf3",
            "network",
            "round_trip",
            "verdict",
            "published",
            "recompute",
        ],
    ),
    // A report and an import see floors 0 and 1 only, though the conductor uses them.
    (
        2,
        &["target", "probe", "guard", "servers", "report", "import"],
    ),
    (3, &["engine"]),
    (4, &["fleet"]),
    (5, &["stage"]),
    (6, &["run", "discover", "agent"]),
    (7, &["cli", "catalogue", "main", "lib"]),
];

/// Uses within a floor, each of the left of the right; without cycles.
const NEIGHBOURS: &[(&str, &str)] = &[
    ("error", "op"),
    ("spec", "payload"),
    // The limits of `--repeats auto` belong to the interval that allows for them.
    ("spec", "stats"),
    ("pattern", "payload"),
    ("pattern", "spec"),
    ("record", "spec"),
    ("record", "stats"),
    // What is a line's limit, and how many flows a test may have.
    ("network", "line"),
    ("spec", "network"),
    // Shares of links are shares of what a line carries.
    ("recompute", "line"),
    // Published figures are judged.
    ("published", "verdict"),
    // Facts about this computer that a target's own facts need.
    ("target", "probe"),
    // The guard works through the control side of a target.
    ("guard", "target"),
    ("cli", "catalogue"),
    ("main", "cli"),
];

/// Folders and files of `target` that several protocols share.
const SHARED_BY_TARGETS: &[&str] = &["local", "stream"];

/// Where `unsafe` may stand.
const UNSAFE: &[&str] = &[
    "libiscsi-sys/src/",
    "src/target/iscsi",
    "src/target/file",
    "src/target/ram",
    "src/target/block",
    "src/target/local",
    // SO_RCVLOWAT alone.
    "src/target/stream.rs",
    "src/slots.rs",
    "src/probe",
    // SO_ATTACH_FILTER, and looking for the listener that a library made.
    "src/servers/one_peer.rs",
    // fork: the agent may have nothing to execute.
    "src/agent/errand.rs",
    // Calls libiscsi itself, to judge our own client by another.
    "src/servers/testing/iscsi.rs",
    // The two calls that make a TAP device.
    "tests/lab/tap.rs",
    // A counting allocator is unsafe by definition.
    "tests/allocations.rs",
];

const LINES_MAX: usize = 450;
/// Files that may be longer, with the reason.
const LONG: &[(&str, &str)] = &[];

/// A source file: its text, the same with comments and literals blanked, and that without unit tests.
struct Source {
    path: String,
    text: String,
    code: String,
    live: String,
}

/// A rule's name, and what it finds: line numbers from 1, each with a reason.
type Rule = (&'static str, fn(&Source) -> Vec<(usize, String)>);

const RULES: &[Rule] = &[
    ("every file begins with //!", begins_with_its_purpose),
    ("modules use lower floors only", floors),
    (
        "a protocol names no other, no workload and no plan",
        protocols,
    ),
    ("the engine names no protocol", engine),
    ("only cli and main print", printing),
    ("nothing below cli panics or exits on purpose", failing),
    ("unsafe only where it must be", unsafe_places),
    ("unsafe follows a SAFETY comment", unsafe_comments),
    ("files stay short", short_files),
    ("foo.rs and foo/, never mod.rs", no_mod_rs),
];

/// Blanks comments, strings and characters, keeping every line break.
fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let end = if rest.starts_with("//") {
            at + rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            at + rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = literal(rest, at > 0 && is_word(bytes[at - 1])) {
            at + length
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8(out).expect("blanks are ASCII")
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The length of the string or character literal that `rest` begins with.
fn literal(rest: &str, in_word: bool) -> Option<usize> {
    let quoted = |start: usize, quote: u8| {
        let mut at = start;
        let bytes = rest.as_bytes();
        while at < bytes.len() {
            match bytes[at] {
                b'\\' => at += 2,
                byte if byte == quote => return at + 1,
                _ => at += 1,
            }
        }
        bytes.len()
    };
    let prefix = rest.trim_start_matches(['b', 'r', 'c']);
    let marks = rest.len() - prefix.len();
    if !in_word && marks <= 2 && rest[..marks].contains('r') {
        let hashes = prefix.len() - prefix.trim_start_matches('#').len();
        if prefix[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let body = marks + hashes + 1;
            return Some(
                rest[body..]
                    .find(&close)
                    .map_or(rest.len(), |end| body + end + close.len()),
            );
        }
    }
    if rest.starts_with('"') {
        return Some(quoted(1, b'"'));
    }
    if rest.starts_with('\'') {
        // 'a' or '\n' are characters, 'a without a second quote is a lifetime.
        let mut characters = rest.char_indices().skip(1);
        let (_, first) = characters.next()?;
        let (third, next) = characters.next()?;
        if first == '\\' {
            return Some(quoted(1, b'\''));
        }
        return (next == '\'').then_some(third + 1);
    }
    None
}

/// Where the next attribute is that leaves its item to tests: `#[cfg(test)]`, `#[cfg(all(test, ..))]`.
fn next_test_attribute(code: &str) -> Option<usize> {
    code.match_indices("#[cfg(").map(|(at, _)| at).find(|at| {
        let condition = code[*at..].split(']').next().unwrap_or("");
        let mut words = condition.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        words.any(|word| word == "test") && !condition.contains("not(test")
    })
}

/// Blanks each item under `#[cfg(test)]`; gives the names of modules under it whose code is in other files.
fn without_tests(code: &str) -> (String, Vec<String>) {
    let mut out = code.to_owned();
    let mut elsewhere = Vec::new();
    while let Some(start) = next_test_attribute(&out) {
        let rest = &out[start..];
        let brace = rest.find('{').unwrap_or(rest.len());
        let semicolon = rest.find(';').unwrap_or(rest.len());
        let end = if semicolon < brace {
            let item = rest[..semicolon]
                .rsplit(char::is_whitespace)
                .next()
                .unwrap_or("");
            if rest[..semicolon].contains("mod ") {
                elsewhere.push(item.to_owned());
            }
            semicolon + 1
        } else {
            let mut depth = 0;
            let close = rest.char_indices().find(|(_, c)| {
                depth += i32::from(*c == '{') - i32::from(*c == '}');
                depth == 0 && *c == '}'
            });
            close.map_or(rest.len(), |(at, _)| at + 1)
        };
        let blank: String = rest[..end]
            .chars()
            .map(|c| {
                if c == '\n' {
                    "\n".to_owned()
                } else {
                    " ".repeat(c.len_utf8())
                }
            })
            .collect();
        out.replace_range(start..start + end, &blank);
    }
    (out, elsewhere)
}

impl Source {
    fn new(path: &str, text: &str) -> (Self, Vec<String>) {
        let code = code_only(text);
        let (live, elsewhere) = without_tests(&code);
        let source = Self {
            path: path.to_owned(),
            text: text.to_owned(),
            code,
            live,
        };
        (source, elsewhere)
    }

    /// `src/target/nfs/lane.rs` is target, nfs, lane.
    fn parts(&self) -> Vec<&str> {
        let path = self.path.strip_prefix("src/").unwrap_or(&self.path);
        path.strip_suffix(".rs")
            .unwrap_or(path)
            .split('/')
            .collect()
    }

    fn top(&self) -> &str {
        self.parts()[0]
    }

    fn in_library(&self) -> bool {
        self.path.starts_with("src/")
    }

    /// Paths from the crate's root that this file names, each with its line: `target::nfs`, `error::Error`.
    fn uses(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for root in ["crate::", "nasgauge::"] {
            for (at, _) in self.live.match_indices(root) {
                if at > 0 && is_word(self.live.as_bytes()[at - 1]) {
                    continue;
                }
                found.extend(
                    expand(&self.live[at + root.len()..])
                        .into_iter()
                        .map(|path| (self.line(at), path)),
                );
            }
        }
        // A chain of super:: that leaves its top-level module.
        let depth = self.parts().len();
        for (at, _) in self.live.match_indices("super::") {
            let before = &self.live[..at];
            if before.ends_with("::") || before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
            {
                continue;
            }
            let mut rest = &self.live[at..];
            let mut climbs = 0;
            while let Some(next) = rest.strip_prefix("super::") {
                climbs += 1;
                rest = next;
            }
            if climbs >= depth {
                found.extend(expand(rest).into_iter().map(|path| (self.line(at), path)));
            }
        }
        found
    }

    fn line(&self, at: usize) -> usize {
        self.live[..at].matches('\n').count() + 1
    }

    /// Lines of live code that hold one of the words, the word standing for itself.
    fn lines_with(&self, words: &[&str]) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (index, line) in self.live.lines().enumerate() {
            for word in words {
                let alone = line.match_indices(word).any(|(at, _)| {
                    let free = |byte: Option<&u8>| !byte.is_some_and(|byte| is_word(*byte));
                    let ends_in_word = word.ends_with(|c: char| c.is_alphanumeric());
                    let starts_in_word = word.starts_with(|c: char| c.is_alphanumeric());
                    (!starts_in_word || at == 0 || free(line.as_bytes().get(at - 1)))
                        && (!ends_in_word || free(line.as_bytes().get(at + word.len())))
                });
                if alone {
                    found.push((index + 1, format!("'{word}' in: {}", line.trim())));
                }
            }
        }
        found
    }
}

/// `a::{b::c, d}` is `a::b::c` and `a::d`; ends where the path does.
fn expand(text: &str) -> Vec<String> {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        let mut depth = 0;
        let mut parts = vec![String::new()];
        for c in group.chars() {
            match c {
                '}' if depth == 0 => break,
                ',' if depth == 0 => parts.push(String::new()),
                _ => {
                    depth += i32::from(c == '{') - i32::from(c == '}');
                    parts.last_mut().expect("one at least").push(c);
                }
            }
        }
        return parts
            .iter()
            .filter(|part| !part.trim().is_empty())
            .flat_map(|part| expand(part))
            .collect();
    }
    let end = text
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    match rest.strip_prefix("::") {
        Some(rest) => expand(rest)
            .into_iter()
            .map(|tail| format!("{name}::{tail}"))
            .collect(),
        None => vec![name.to_owned()],
    }
}

fn floor_of(module: &str) -> Option<u32> {
    FLOORS
        .iter()
        .find(|(_, modules)| modules.contains(&module))
        .map(|(floor, _)| *floor)
}

fn begins_with_its_purpose(source: &Source) -> Vec<(usize, String)> {
    let good = source.text.starts_with("//! ");
    if good {
        Vec::new()
    } else {
        vec![(1, "no //! at the top".into())]
    }
}

fn floors(source: &Source) -> Vec<(usize, String)> {
    if !source.in_library() {
        return Vec::new();
    }
    let own = source.top();
    let Some(floor) = floor_of(own) else {
        return vec![(1, format!("module '{own}' has no floor"))];
    };
    let mut found = Vec::new();
    for (line, path) in source.uses() {
        let used = path.split("::").next().unwrap_or("");
        let fine = used == own
            || NEIGHBOURS.contains(&(own, used))
            || floor_of(used).is_some_and(|below| below < floor);
        if !fine {
            found.push((line, format!("{own} (floor {floor}) uses {path}")));
        }
    }
    found
}

fn protocols(source: &Source) -> Vec<(usize, String)> {
    let parts = source.parts();
    if source.top() != "target" || parts.len() < 2 {
        return Vec::new();
    }
    let own = parts[1];
    let mut found = Vec::new();
    for (line, path) in source.uses() {
        let path_parts: Vec<&str> = path.split("::").collect();
        let other = match path_parts.as_slice() {
            // A lower-case name below target is a module: a protocol or what several share.
            ["target", module, ..] => {
                *module != own
                    && !SHARED_BY_TARGETS.contains(module)
                    && module.starts_with(|c: char| c.is_lowercase())
                    && Path::new(env!("CARGO_MANIFEST_DIR"))
                        .join(format!("src/target/{module}.rs"))
                        .exists()
            }
            ["spec", "workload" | "plan", ..] => true,
            _ => false,
        };
        if other {
            found.push((line, format!("{own} names {path}")));
        }
    }
    found
}

fn engine(source: &Source) -> Vec<(usize, String)> {
    if source.top() != "engine" {
        return Vec::new();
    }
    source.lines_with(&[
        "null", "sim", "ram", "nfs", "smb", "iscsi", "io_uring", "mmap",
    ])
}

fn printing(source: &Source) -> Vec<(usize, String)> {
    if !source.in_library() || matches!(source.top(), "cli" | "main") {
        return Vec::new();
    }
    source.lines_with(&["println!", "print!", "eprintln!", "eprint!", "dbg!"])
}

fn failing(source: &Source) -> Vec<(usize, String)> {
    if !source.in_library() || matches!(source.top(), "cli" | "main") {
        return Vec::new();
    }
    source.lines_with(&[
        ".unwrap()",
        ".expect(",
        ".unwrap_err()",
        ".expect_err(",
        "process::exit",
        "panic!",
        "todo!",
        "unimplemented!",
    ])
}

/// The lines on which `unsafe` code is, tests included.
fn unsafe_lines(source: &Source) -> Vec<usize> {
    let word = |line: &str| {
        line.match_indices("unsafe").any(|(at, word)| {
            let bytes = line.as_bytes();
            let rest = line[at + word.len()..].trim_start();
            // The type of a function pointer does nothing by itself.
            let pointer = rest.starts_with("extern") && rest.contains(" fn(");
            let part_of_a_word = (at > 0 && is_word(bytes[at - 1]))
                || bytes
                    .get(at + word.len())
                    .is_some_and(|byte| is_word(*byte));
            !part_of_a_word && !pointer
        })
    };
    let lines = source.code.lines().enumerate();
    lines
        .filter(|(_, line)| word(line))
        .map(|(index, _)| index + 1)
        .collect()
}

fn unsafe_places(source: &Source) -> Vec<(usize, String)> {
    if UNSAFE.iter().any(|place| source.path.starts_with(place)) {
        return Vec::new();
    }
    unsafe_lines(source)
        .into_iter()
        .map(|line| (line, "unsafe here".into()))
        .collect()
}

fn unsafe_comments(source: &Source) -> Vec<(usize, String)> {
    let lines: Vec<&str> = source.text.lines().collect();
    let explained = |line: usize| {
        // The comment above the statement, whose first lines may stand in between.
        let above = lines[..line].iter().rev().take(12);
        above
            .take_while(|line| !line.trim().is_empty())
            .any(|line| line.contains("SAFETY:") || line.contains("# Safety"))
    };
    let in_allocator = source.path.starts_with("tests/allocations");
    unsafe_lines(source)
        .into_iter()
        .filter(|line| !explained(*line))
        // The methods of an unsafe trait promise nothing of their own.
        .filter(|line| !(in_allocator && lines[line - 1].trim().starts_with("unsafe fn")))
        .map(|line| (line, "no SAFETY comment above".into()))
        .collect()
}

fn short_files(source: &Source) -> Vec<(usize, String)> {
    let limit = if source.path == "src/main.rs" {
        60
    } else {
        LINES_MAX
    };
    if !source.in_library() || LONG.iter().any(|(path, _)| *path == source.path) {
        return Vec::new();
    }
    // Blanked tests leave empty lines; so do the text's own, which count.
    let tests = source
        .code
        .lines()
        .zip(source.live.lines())
        .filter(|(code, live)| !code.trim().is_empty() && live.trim().is_empty())
        .count();
    let lines = source.text.lines().count() - tests;
    if lines > limit {
        vec![(
            lines,
            format!("{lines} lines without tests, more than {limit}"),
        )]
    } else {
        Vec::new()
    }
}

fn no_mod_rs(source: &Source) -> Vec<(usize, String)> {
    let wrong = source.path.ends_with("/mod.rs");
    if wrong {
        vec![(1, "name it after its folder".into())]
    } else {
        Vec::new()
    }
}

fn rust_files(directory: &Path, into: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(directory).expect("a source directory");
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// All sources; files that only tests see are left out of `live`.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for directory in ["src", "tests", "libiscsi-sys/src"] {
        rust_files(&root.join(directory), &mut paths);
    }
    paths.sort();
    let mut sources = Vec::new();
    let mut only_tests = HashSet::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("UTF-8");
        let relative = path
            .strip_prefix(root)
            .expect("below the root")
            .to_string_lossy()
            .into_owned();
        let (source, elsewhere) = Source::new(&relative, &text);
        let folder = relative.strip_suffix(".rs").unwrap_or(&relative).to_owned();
        only_tests.extend(elsewhere.into_iter().map(|name| format!("{folder}/{name}")));
        sources.push(source);
    }
    for source in &mut sources {
        let for_tests = only_tests.iter().any(|module| {
            let rest = source.path.strip_prefix(module.as_str());
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        });
        if for_tests {
            source.live = source
                .live
                .chars()
                .map(|c| if c == '\n' { '\n' } else { ' ' })
                .collect();
        }
    }
    sources
}

#[test]
fn the_house_is_kept() {
    let sources = sources();
    assert!(sources.len() > 50, "the sources were not found");
    let mut broken = String::new();
    for (name, rule) in RULES {
        for source in &sources {
            for (line, what) in rule(source) {
                broken.push_str(&format!("\n{}:{line}: {name}: {what}", source.path));
            }
        }
    }
    assert!(broken.is_empty(), "{broken}\n");
}

#[test]
fn neighbours_have_no_cycle_and_stay_on_their_floor() {
    for (from, to) in NEIGHBOURS {
        assert_eq!(floor_of(from), floor_of(to), "{from} and {to}");
        let mut reached = vec![*to];
        let mut at = 0;
        while at < reached.len() {
            let here = reached[at];
            assert_ne!(here, *from, "{from} reaches itself through {to}");
            reached.extend(
                NEIGHBOURS
                    .iter()
                    .filter(|pair| pair.0 == here)
                    .map(|pair| pair.1),
            );
            at += 1;
        }
    }
}

/// Each rule finds what it is there for.
#[test]
fn every_rule_bites() {
    let long = "//! x\n".to_owned() + &"fn f() {}\n".repeat(LINES_MAX);
    let cases: &[(&str, &str, &str)] = &[
        ("src/op.rs", "use crate::op::Op;\n", "begins"),
        (
            "src/units.rs",
            "//! x\nuse crate::spec::uri::TargetSpec;\n",
            "floors",
        ),
        (
            "src/engine/worker.rs",
            "//! x\nuse crate::{error::Error, fleet::Fleet};\n",
            "floors",
        ),
        (
            "src/record.rs",
            "//! x\nfn f() { super::run::run() }\n",
            "floors",
        ),
        (
            "src/report/csv.rs",
            "//! x\nuse crate::probe::cpu;\n",
            "floors",
        ),
        ("src/brandnew.rs", "//! x\n", "no floor"),
        (
            "src/target/nfs/lane.rs",
            "//! x\nuse crate::target::smb::Share;\n",
            "names no other",
        ),
        (
            "src/target/local.rs",
            "//! x\nuse crate::spec::workload::Phase;\n",
            "names no other",
        ),
        (
            "src/engine.rs",
            "//! x\nuse crate::target::nfs;\n",
            "engine",
        ),
        (
            "src/guard.rs",
            "//! x\nfn f() { println!(\"x\") }\n",
            "print",
        ),
        (
            "src/guard.rs",
            "//! x\nfn f() { g().unwrap(); }\n",
            "panics",
        ),
        (
            "src/run.rs",
            "//! x\nfn f() { std::process::exit(1) }\n",
            "panics",
        ),
        (
            "src/run.rs",
            "//! x\n// SAFETY: no\nfn f() { unsafe { g() } }\n",
            "unsafe only",
        ),
        (
            "src/slots.rs",
            "//! x\n\nfn f() { unsafe { g() } }\n",
            "SAFETY",
        ),
        ("src/run.rs", &long, "short"),
        ("src/run/mod.rs", "//! x\n", "mod.rs"),
    ];
    for (path, text, word) in cases {
        let (source, _) = Source::new(path, text);
        let found: Vec<String> = RULES
            .iter()
            .flat_map(|(name, rule)| {
                rule(&source)
                    .into_iter()
                    .map(move |(_, what)| format!("{name}: {what}"))
            })
            .collect();
        let hit = found.iter().any(|finding| finding.contains(word))
            || word == &"floors" && !found.is_empty();
        assert!(hit, "{path}: {text}: {found:?}");
    }
}

#[test]
fn comments_literals_and_tests_are_not_code() {
    let text = r##"//! println!("x")
/// .unwrap() in a doc
fn f<'a>(x: &'a str) -> char { let _ = "crate::run // \" unsafe"; let _ = r#"panic!"#; '"' }
#[cfg(test)]
mod tests { fn g() { x.unwrap(); if y { println!("}") } } }
fn h() {}
"##;
    let (source, _) = Source::new("src/guard.rs", text);
    for (name, rule) in RULES {
        assert!(rule(&source).is_empty(), "{name}: {:?}", rule(&source));
    }
    assert!(source.live.contains("fn h()") && !source.live.contains("fn g()"));
}
