//! The targets of a run: opened, examined, prepared, left.

use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::engine::Job;
use crate::error::{Error, Kind, Phase, Result};
use crate::fleet;
use crate::guard::{Claim, Object, Site};
use crate::run::files::Laid;
use crate::run::way::{self, Way};
use crate::run::{Identity, Settings, StepView, Watch, drive, split_phase};
use crate::spec::plan::{Cell, Plan};
use crate::spec::uri::TargetSpec;
use crate::spec::workload::PhaseFile;
use crate::target::{self, Attach, Caps, Facts, Login, Protocol, Secret};
use crate::units::Bytes;

/// Block of the laying, in bytes.
const LAY_BLOCK: u64 = 1 << 20;
/// Operations under way while laying, where one session can.
const LAY_DEPTH: u16 = 4;

/// One target of a run.
pub(super) struct Place {
    pub(super) protocol: &'static Protocol,
    pub(super) login: Login,
    pub(super) caps: Caps,
    /// None when it could not be opened; then `broken` says why.
    site: Option<Site>,
    broken: Option<Error>,
    /// The small files that stand there.
    pub(super) laid: Option<Laid>,
    loopback: Option<bool>,
    /// The way of its bytes, for the counters that see them.
    way: Way,
}

/// Opens and examines every target. Usage errors and refusals end it; a server that can't be reached only breaks
/// its own place, so that the others are still measured.
pub(super) fn open_all(
    plan: &Plan,
    run: &Identity,
    settings: &mut Settings<'_>,
    watch: &mut dyn Watch,
) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    for (index, (spec, protocol)) in check(plan)?.into_iter().enumerate() {
        let (mut place, examined) = open(plan, index, spec, protocol, run, settings, watch)?;
        match examined {
            Ok(()) => {}
            Err(error) if error.before_anything() => return Err(error.at(place.uri())),
            Err(error) => place.break_with(error, watch),
        }
        places.push(place);
    }
    if settings.stop.load(Relaxed) {
        return Err(stopped(Phase::Connect));
    }
    Ok(places)
}

/// Opens and examines the only target of a plan, without which nothing is to be measured: whatever is wrong with it is the
/// caller's to tell. Nothing is made.
pub(super) fn open_only(
    plan: &Plan,
    run: &Identity,
    settings: &mut Settings<'_>,
    watch: &mut dyn Watch,
) -> Result<Place> {
    let Some((spec, protocol)) = check(plan)?.pop() else {
        return Err(Error::usage("no target is named"));
    };
    let (place, examined) = open(plan, 0, spec, protocol, run, settings, watch)?;
    examined.map_err(|error| error.at(place.uri()))?;
    Ok(place)
}

/// The targets of a plan, if each can do what is asked of it.
fn check(plan: &Plan) -> Result<Vec<(TargetSpec, &'static Protocol)>> {
    let checked = plan.targets.iter().map(|text| {
        let spec = TargetSpec::parse(text)?;
        let protocol = target::check(&spec)?;
        preflight(plan, &spec, protocol).map_err(|error| error.at(text))?;
        Ok((spec, protocol))
    });
    checked.collect()
}

/// One of them, and what examining it came to.
fn open(
    plan: &Plan,
    index: usize,
    spec: TargetSpec,
    protocol: &'static Protocol,
    run: &Identity,
    settings: &mut Settings<'_>,
    watch: &mut dyn Watch,
) -> Result<(Place, Result<()>)> {
    if settings.stop.load(Relaxed) {
        return Err(stopped(Phase::Connect));
    }
    let secret = if spec.user.is_some() {
        (settings.secrets)(&spec)?
    } else {
        Secret::default()
    };
    let mut place = Place::new(plan, spec, protocol, secret);
    let examined = place.examine(plan, index, run).map(|notes| {
        for note in notes {
            watch.note(&format!("{}: {note}", place.uri()));
        }
    });
    Ok((place, examined))
}

fn stopped(phase: Phase) -> Error {
    Error::new(phase, Kind::Interrupted, "stopped on request")
}

/// Removes what was made everywhere; a sentence for each thing that stays against our will.
pub(super) fn leave_all(places: &mut [Place], watch: &mut dyn Watch) -> Vec<String> {
    let mut stuck = Vec::new();
    for place in places {
        let uri = place.login.spec.uri.clone();
        let Some(site) = &mut place.site else {
            continue;
        };
        let mut left = site.leave();
        if left.as_ref().is_err_and(Error::server_lost)
            && let Ok(control) = fleet::control(&place.login)
        {
            // The server is there, only the connection was lost, as after a stall.
            site.reopened(control);
            left = site.leave();
        }
        match left {
            Ok(Some(kept)) => watch.note(&format!("{uri}: {kept}")),
            Ok(None) => {}
            Err(error) => stuck.push(error.at(&uri).to_string()),
        }
    }
    stuck
}

/// What a plan asks of a target that it can't do, before it is opened.
fn preflight(plan: &Plan, spec: &TargetSpec, protocol: &Protocol) -> Result<()> {
    let caps = &(protocol.caps)(spec);
    for cell in plan.round(1).iter().filter(|cell| cell.target == 0) {
        let (phase, lanes) = split_phase(plan, *cell, caps);
        let name = plan.cell_name(*cell);
        if phase.verify && !caps.stores {
            return Err(Error::usage(format!(
                "workload {name} verifies, but this target stores no data"
            )));
        }
        if phase.verify && plan.read_existing.is_some() {
            return Err(Error::usage(format!(
                "workload {name} can't verify a file that nasgauge did not write"
            )));
        }
        if phase.durability.each_write() && phase.rw.writes() && !caps.sync {
            return Err(Error::usage(format!(
                "workload {name} wants each write durable (durability = {}), which {} can't ask for",
                phase.durability.key(),
                caps.engine
            )));
        }
        if phase.files.is_some() {
            if protocol.folder.is_none() {
                return Err(Error::usage(format!(
                    "workload {name} works on small files, and {} has none; targets with files are paths, nfs:// and smb://",
                    protocol.name
                )));
            }
            if spec.switch("direct")? == Some(true) {
                return Err(Error::usage(format!(
                    "workload {name} works on small files, which direct=1 can't read or write; leave it out"
                )));
            }
            continue;
        }
        let blocks = phase.size.0 / u64::from(phase.block_max());
        if blocks < u64::from(lanes) {
            return Err(Error::usage(format!(
                "workload {name} needs {lanes} sessions here to keep its depth, but size {} holds only {blocks} blocks; \
                 give a larger --size",
                phase.size
            )));
        }
    }
    Ok(())
}

/// How many kinds of payload the plan's phases have.
fn kinds_of_content(plan: &Plan) -> usize {
    let mut kinds: Vec<_> = plan.phases().map(|phase| phase.content(0)).collect();
    kinds.dedup();
    kinds.len()
}

impl Place {
    fn new(plan: &Plan, spec: TargetSpec, protocol: &'static Protocol, secret: Secret) -> Self {
        let caps = (protocol.caps)(&spec);
        let millis = |nanos: crate::units::Nanos| nanos.0 / 1_000_000;
        let loopback = if spec.hosts.is_empty() {
            None
        } else {
            Some(spec.hosts.iter().any(|host| is_here(host)))
        };
        let login = Login {
            spec,
            secret,
            connect_timeout_ms: millis(plan.connect_timeout),
            io_timeout_ms: millis(plan.io_timeout),
        };
        Self {
            protocol,
            login,
            caps,
            site: None,
            broken: None,
            laid: None,
            loopback,
            way: Way::default(),
        }
    }

    /// The target's URI.
    pub(super) fn uri(&self) -> &str {
        &self.login.spec.uri
    }

    /// Whether the server is on this computer; None for local targets.
    pub(super) const fn loopback(&self) -> Option<bool> {
        self.loopback
    }

    /// The way of its bytes.
    pub(super) const fn way(&self) -> &Way {
        &self.way
    }

    /// What the target says of itself.
    pub(super) fn facts(&mut self) -> Result<Facts> {
        match &mut self.site {
            Some(site) => site.facts(),
            None => Ok(Facts::default()),
        }
    }

    /// Where the data is, or why there is none.
    pub(super) fn object(&self) -> std::result::Result<&Object, &Error> {
        match (&self.site, &self.broken) {
            (Some(site), None) => Ok(site.object()),
            (_, Some(error)) => Err(error),
            (None, None) => unreachable!("a place is opened or broken"),
        }
    }

    /// The guarded side.
    pub(super) const fn site(&mut self) -> Option<&mut Site> {
        self.site.as_mut()
    }

    fn break_with(&mut self, error: Error, watch: &mut dyn Watch) {
        let error = error.at(self.uri());
        watch.note(&error.to_string());
        self.broken = Some(error);
    }

    fn examine(&mut self, plan: &Plan, index: usize, run: &Identity) -> Result<Vec<String>> {
        let first = plan.phase(Cell {
            target: index,
            workload: 0,
            phase: 0,
            repeat: 1,
        });
        let claim = Claim {
            // Two targets may be one directory, reached in two ways: each lays a file of its own there.
            run_id: if plan.targets.len() > 1 {
                format!("{}-{}", run.id, index + 1)
            } else {
                run.id.clone()
            },
            created_utc: run.started_utc.clone(),
            content: first.content(run.key ^ index as u64),
            size: plan.file_size(),
            small_files: plan.small_files().map_or(0, |(count, _)| count),
            small_room: plan.small_files().map_or(0, |(_, room)| room),
            writes: plan.writes(),
            write_bytes: plan.write_bytes().map(|bytes| bytes.0),
            read_existing: plan.read_existing.clone(),
            destroy: plan.destroy.clone(),
            keep: plan.keep,
        };
        let control = fleet::control(&self.login)?;
        let mut site = Site::examine(control, claim)?;
        let notes = std::mem::take(&mut site.notes);
        self.check_alignment(plan, &mut site)?;
        if site.always_aligned() && plan.read_existing.is_none() && kinds_of_content(plan) > 1 {
            return Err(Error::usage(
                "phases with different payloads would leave a device that 'clean' can't recognise; give them a run each",
            ));
        }
        self.site = Some(site);
        self.way = Way::of(&self.login.spec);
        Ok(notes)
    }

    /// Sizes and blocks against what the medium's blocks or direct I/O need.
    fn check_alignment(&self, plan: &Plan, site: &mut Site) -> Result<()> {
        let always = site.always_aligned();
        let forced = self.login.spec.switch("direct")? == Some(true);
        for cell in plan.round(1) {
            let phase = plan.phase(cell);
            if phase.files.is_some() || !(always || phase.direct || forced) {
                continue;
            }
            let Some(unit) = site.direct_alignment()?.filter(|unit| *unit > 1) else {
                continue;
            };
            let mut lengths = phase
                .blocks
                .iter()
                .map(|(size, _)| size.0)
                .chain(phase.bytes.map(|bytes| bytes.0))
                .chain([phase.size.0, plan.file_size()]);
            if let Some(odd) = lengths.find(|bytes| bytes % unit != 0) {
                let why = if always {
                    "the device's blocks"
                } else {
                    "direct I/O"
                };
                return Err(Error::usage(format!(
                    "workload {}: {odd} bytes is not a multiple of {unit}, which {why} need here",
                    plan.cell_name(cell)
                )));
            }
        }
        Ok(())
    }

    /// Enters the target and lays the test file; a failure breaks the place.
    pub(super) fn prepare(&mut self, plan: &Plan, stop: &Arc<AtomicBool>, watch: &mut dyn Watch) {
        if self.broken.is_some() {
            return;
        }
        if let Err(error) = self.try_prepare(plan, stop, watch) {
            self.break_with(error, watch);
        }
    }

    fn try_prepare(
        &mut self,
        plan: &Plan,
        stop: &Arc<AtomicBool>,
        watch: &mut dyn Watch,
    ) -> Result<()> {
        let Some(site) = &mut self.site else {
            return Ok(());
        };
        site.enter()?;
        let object = site.object().clone();
        let bytes = plan.file_size();
        if object.laid || !self.caps.stores || bytes == 0 {
            return Ok(());
        }
        let label = format!(
            "laying {} of test data on {}",
            Bytes(bytes),
            self.login.spec.protocol
        );
        watch.begin(&StepView {
            label,
            number: None,
            seconds: None,
            bytes: Some(bytes),
        });
        let keys = PhaseFile {
            rw: Some(crate::spec::workload::Rw::Write),
            bs: Some(Bytes(LAY_BLOCK.min(bytes))),
            size: Some(Bytes(bytes)),
            iodepth: Some(LAY_DEPTH.min(self.caps.iodepth_max)),
            payload: Some(object.content.fill),
            compress_percent: Some(object.content.compress_percent),
            dedupe_percent: Some(object.content.dedupe_percent),
            ..PhaseFile::default()
        };
        let phase = keys.resolve("laying the test file")?;
        let job = Job {
            attach: Attach {
                object: object.name.clone(),
                write: true,
                direct: false,
                durability: phase.durability,
                iodepth: phase.iodepth,
                block_max: phase.block_max(),
                lane: 0,
                round: 0,
            },
            phase,
            lane: 0,
            lanes: 1,
            base: object.base,
            seed: 0,
            content: object.content,
            generation: None,
            flush: self.caps.flush,
            files: None,
        };
        // However far it gets, this much may have to be removed.
        site.written_to(bytes);
        let run = drive::drive(self, vec![job], stop, watch, &mut |_, _| Ok(()))?;
        if let Some(error) = run.error() {
            return Err(Error {
                phase: Phase::Prepare,
                ..error
            });
        }
        if run.stopped() {
            return Err(stopped(Phase::Prepare));
        }
        let Some(site) = &mut self.site else {
            return Ok(());
        };
        let stored = site.stored_size()?;
        if stored.is_some_and(|stored| stored != bytes) {
            let message = format!(
                "{bytes} bytes were accepted, but the server holds {}",
                stored.unwrap_or_default()
            );
            return Err(Error::new(Phase::Prepare, Kind::NoSpace, message));
        }
        site.laid()
    }
}

/// Whether an address of this host is one of this computer's own.
fn is_here(host: &str) -> bool {
    let Ok(addresses) = (host, 0u16).to_socket_addrs() else {
        return false;
    };
    addresses
        .into_iter()
        .any(|address| way::is_here(address.ip()))
}
