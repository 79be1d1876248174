//! Reports of workers as rows, with the marks that a reader must know.

use super::cell::Context;
use super::drive::Driven;
use crate::clock::now_utc;
use crate::error::Error;
use crate::op::{Direction, Durability, FileOp};
use crate::payload::{Content, Fill, Payload};
use crate::record::{Flag, LatencySummary, Row, SmallFiles, Status};
use crate::run::site::Place;
use crate::run::status_of;
use crate::run::way::Way;
use crate::run::witness;
use crate::spec::workload::Phase;
use crate::target::Caps;
use crate::units::SECOND;

/// A row shorter than this has no steady figure.
const SHORT_NS: u64 = 3 * SECOND;
const FEW_OPS: u64 = 100;
/// The payload must be made this many times faster than it is written.
const GENERATOR_MARGIN: f64 = 4.0;
/// Share of the bytes read that the device must have moved for the cache to be out of the game.
const DEVICE_SHARE: f64 = 0.95;

/// Builds the rows of one cell.
pub(super) struct Rows {
    phase: Phase,
    template: Row,
    caps: Caps,
    way: Way,
    server_ram: Option<u64>,
    generator: Option<f64>,
}

impl Rows {
    pub(super) fn new(cell: &Context<'_>, place: &Place, phase: &Phase, lanes: u16) -> Self {
        let content = phase.content(0);
        let mut flags = Vec::new();
        let mut mark = |flag, on: bool| {
            if on {
                flags.push(flag);
            }
        };
        let spec = &place.login.spec;
        mark(Flag::Loopback, place.loopback() == Some(true));
        mark(Flag::Embedded, cell.plan.embedded && !spec.hosts.is_empty());
        mark(
            Flag::GuestSession,
            spec.protocol == "smb" && spec.user.is_none(),
        );
        mark(Flag::Wsl, cell.wsl && !spec.hosts.is_empty());
        let op = phase.rw.file_op();
        let moves = op.is_none_or(FileOp::moves_content);
        mark(Flag::Compressible, moves && compressible(&content));
        mark(
            Flag::NamesCached,
            spec.protocol == "file" && matches!(op, Some(FileOp::Stat | FileOp::List)),
        );
        let foreign = place.object().is_ok_and(|object| object.foreign);
        mark(Flag::UserFile, foreign);
        // A worker on small files makes one call at a time, on one connection.
        let each = match op {
            Some(_) => place.caps.connections.min(1),
            None => place.caps.connections,
        };
        let connections = u32::from(each) * u32::from(lanes);
        let template = Row {
            run_id: cell.run_id.to_owned(),
            stage: cell.stage.to_owned(),
            started_utc: now_utc(),
            target: spec.uri.clone(),
            protocol: spec.protocol.clone(),
            engine: place.caps.engine.to_owned(),
            workload: cell.plan.cell_name(cell.cell),
            pattern: op.map_or(phase.rw.key(), |_| "files").to_owned(),
            block_size_bytes: phase.block_size().filter(|_| moves),
            iodepth: phase.iodepth,
            lanes,
            connections: Some(connections),
            size_bytes: phase.size.0,
            repeat: cell.cell.repeat,
            payload: if foreign {
                "unknown".into()
            } else {
                payload_text(&content)
            },
            flags,
            files: phase.files.map(|files| SmallFiles {
                nrfiles: files.nrfiles,
                filesize: files.filesize.0,
                entries: None,
            }),
            ..Row::blank()
        };
        let writes =
            phase.rw.writes() && moves && phase.block_max() > 0 && place.protocol.name != "null";
        Self {
            phase: phase.clone(),
            template,
            caps: place.caps.clone(),
            way: place.way().clone(),
            server_ram: cell.plan.server_ram.map(|ram| ram.0),
            generator: writes.then(|| generator_rate(&content, phase.block_max())),
        }
    }

    /// The directions that the phase has.
    pub(super) fn directions(&self) -> impl Iterator<Item = Direction> + use<> {
        let (reads, writes) = (self.phase.rw.reads(), self.phase.rw.writes());
        [(Direction::Read, reads), (Direction::Write, writes)]
            .into_iter()
            .filter(|pair| pair.1)
            .map(|pair| pair.0)
    }

    /// A row of this cell with nothing measured.
    pub(super) fn blank(&self, direction: Direction) -> Row {
        let op = self.phase.rw.file_op();
        Row {
            direction: op.map_or(direction.key(), FileOp::key).to_owned(),
            ..self.template.clone()
        }
    }

    /// Rows of a cell that never began.
    pub(super) fn broken(&self, error: &Error) -> Vec<Row> {
        let row = |direction| Row {
            status: status_of(error),
            errors: u64::from(status_of(error) != Status::Interrupted),
            error: Some(error.to_string()),
            ..self.blank(direction)
        };
        self.directions().map(row).collect()
    }

    /// The measuring begins now.
    pub(super) fn started(&mut self) {
        self.template.started_utc = now_utc();
    }

    /// The rows. `stored` is what the size check found; `stopped` that the user ended it.
    pub(super) fn finish(
        &self,
        driven: &Driven,
        stored: Option<&Error>,
        stopped: bool,
    ) -> Vec<Row> {
        self.directions()
            .map(|direction| self.one(direction, driven, stored, stopped))
            .collect()
    }

    fn one(
        &self,
        direction: Direction,
        driven: &Driven,
        stored: Option<&Error>,
        stopped: bool,
    ) -> Row {
        let mut row = self.blank(direction);
        let tally = driven.tally(direction);
        let span = driven.span();
        row.bytes = tally.bytes;
        row.ops = tally.ops;
        row.seconds = span
            .filter(|_| tally.ops > 0)
            .map(|nanos| nanos as f64 / 1e9);
        row.latency_ns = LatencySummary::of(&tally.latency);
        row.latency = tally.latency;
        row.negotiated = driven.negotiated();
        if let Some(engine) = word(&row.negotiated, "engine") {
            engine.clone_into(&mut row.engine);
        }
        row.wire_ops = driven.wire_ops();
        if let Some(passed) = &driven.measured {
            witness::fill(&mut row, &self.way, direction, passed);
        }
        let share = tally.bytes as f64 / driven.bytes().max(1) as f64;
        row.client_cpu_s = Some(driven.cpu_ns() as f64 / 1e9 * share);
        if let Some(op) = self.phase.rw.file_op() {
            self.small(&mut row, driven, op);
        } else if direction == Direction::Write {
            self.written(&mut row, driven);
        } else {
            self.read(&mut row, driven);
        }
        if self.caps.connections > 0
            && row.files.is_none()
            && row
                .wire_ops
                .is_some_and(|wire| wire as f64 > 1.5 * driven.ops() as f64)
        {
            row.flags.push(Flag::BlockSplit);
        }
        if span.is_none_or(|span| span < SHORT_NS) || tally.ops < FEW_OPS {
            row.flags.push(Flag::TooShort);
        }
        Self::judge(&mut row, driven, stored, stopped);
        if let Some(passed) = &driven.whole {
            witness::mark(&mut row, &self.way, driven.claim(), passed);
        }
        row.flags.sort_unstable();
        row
    }

    /// What only rows of small files have.
    fn small(&self, row: &mut Row, driven: &Driven, op: FileOp) {
        row.client_cpu_s = Some(driven.cpu_ns() as f64 / 1e9);
        if let Some(files) = &mut row.files {
            files.entries = driven.entries();
            let mut words: Vec<String> = row
                .negotiated
                .split_whitespace()
                .map(str::to_owned)
                .collect();
            words.push(format!("nrfiles={}", files.nrfiles));
            words.extend(files.entries.map(|entries| format!("entries={entries}")));
            row.negotiated = words.join(" ");
        }
        match op {
            FileOp::Create => self.written(row, driven),
            FileOp::Open => self.read(row, driven),
            FileOp::Stat | FileOp::List => {
                let asked = if self.caps.connections > 0 {
                    "bypassed"
                } else {
                    "unknown"
                };
                row.cache_state = Some(asked.to_owned());
            }
            // The server's answer is all that there is.
            FileOp::Rename | FileOp::Remove => {}
        }
    }

    fn written(&self, row: &mut Row, driven: &Driven) {
        row.durability = Some(self.phase.durability.key().to_owned());
        row.flush_seconds = driven.flush().map(|nanos| nanos as f64 / 1e9);
        row.generator_bytes_per_s = self.generator;
        let synced = self.phase.durability.each_write();
        if !synced && driven.flush().is_none() {
            row.durability = Some(Durability::None.key().to_owned());
            row.flags.push(Flag::NotDurable);
        }
        let rate = row.seconds.map(|seconds| row.bytes as f64 / seconds);
        if let (Some(rate), Some(generator)) = (rate, self.generator)
            && generator < GENERATOR_MARGIN * rate
        {
            row.flags.push(Flag::GeneratorBound);
        }
        if self.local_storage() {
            row.device_bytes = driven.storage().map(|io| io.write_bytes);
        }
    }

    fn read(&self, row: &mut Row, driven: &Driven) {
        if self.caps.connections > 0 {
            // Our own clients keep no cache: each read crosses the wire.
            row.cache_state = Some("bypassed".into());
            if self
                .server_ram
                .is_some_and(|ram| self.phase.size.0 < 2 * ram)
            {
                row.flags.push(Flag::ServerCached);
            }
        } else if self.local_storage() {
            row.device_bytes = driven.storage().map(|io| io.read_bytes);
            let from_device = row
                .device_bytes
                .map(|device| device as f64 >= DEVICE_SHARE * row.bytes as f64);
            let state = match from_device {
                None => "unknown",
                Some(true) if word(&row.negotiated, "direct") == Some("1") => "bypassed",
                Some(true) => "dropped",
                Some(false) => "warm",
            };
            if state == "warm" {
                row.flags.push(Flag::ClientCached);
            }
            row.cache_state = Some(state.to_owned());
        }
    }

    /// A target whose bytes pass the kernel's storage counters of this computer.
    fn local_storage(&self) -> bool {
        matches!(self.template.protocol.as_str(), "file" | "block")
    }

    fn judge(row: &mut Row, driven: &Driven, stored: Option<&Error>, stopped: bool) {
        let silent = || {
            let nothing = driven.ops() == 0 && !stopped;
            nothing.then(|| {
                Error::new(
                    crate::error::Phase::Io,
                    crate::error::Kind::Other,
                    "no operation ended in the measured time; give a longer --runtime",
                )
            })
        };
        let error = driven.error().or_else(silent).or_else(|| stored.cloned());
        if let Some(error) = error.map(|error| error.at(&row.target)) {
            row.status = status_of(&error);
            row.errors = driven
                .errors()
                .max(u64::from(row.status != Status::Interrupted));
            row.error = Some(error.to_string());
        } else if stopped {
            row.status = Status::Interrupted;
            row.error = Some("stopped on request".into());
        }
        match row.status {
            Status::Interrupted => row.flags.push(Flag::Interrupted),
            Status::ServerLost => row.flags.push(Flag::ServerLost),
            _ => {}
        }
        if stored.is_some() {
            row.status = Status::Invalid;
            row.flags.push(Flag::WrongSizeStored);
        }
    }
}

/// The value of a `key=value` word.
fn word<'a>(words: &'a str, key: &str) -> Option<&'a str> {
    words
        .split(' ')
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn compressible(content: &Content) -> bool {
    content.fill == Fill::Zero || content.compress_percent > 0 || content.dedupe_percent > 0
}

fn payload_text(content: &Content) -> String {
    if content.fill == Fill::Zero {
        return "zero".into();
    }
    let mut text = String::from("incompressible");
    if compressible(content) {
        text = format!(
            "compress_{}_dedupe_{}",
            content.compress_percent, content.dedupe_percent
        );
    }
    text
}

/// How fast one core makes this payload, in bytes per second: the best of three short tries.
fn generator_rate(content: &Content, block: u32) -> f64 {
    const TRY_NS: u64 = 5_000_000;
    let payload = Payload::new(content.clone());
    let mut buffer = vec![0; block as usize];
    let mut best = 0.0f64;
    let mut generation = 0;
    for _ in 0..3 {
        let start = crate::clock::monotonic_ns();
        let mut bytes = 0u64;
        let mut elapsed = 0;
        while elapsed < TRY_NS {
            payload.fill(&mut buffer, generation * u64::from(block), generation);
            std::hint::black_box(&buffer);
            generation += 1;
            bytes += u64::from(block);
            elapsed = crate::clock::monotonic_ns() - start;
        }
        best = best.max(bytes as f64 * 1e9 / elapsed as f64);
    }
    best
}
