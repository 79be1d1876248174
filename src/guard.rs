//! The only code that creates, overwrites or removes anything a user could see.
//!
//! Read first: [`Site`] is a place on a target that a run may use. Entering one either makes a directory of ours with a
//! manifest in it (`files`), or examines a device and refuses unless it is blank or ours (`device`), or takes
//! memory. Leaving removes what was made. Nothing without our manifest is ever opened for writing or removed.
//!
//! Must not know: workloads, engines, protocols.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::payload::{Content, Fill};
use crate::target::{Control, Facts};

pub mod device;
pub mod files;
pub mod names;

/// What identifies our things: the content of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Always [`MAGIC`].
    pub nasgauge: String,
    /// The run that made it.
    pub run_id: String,
    /// When, UTC, RFC 3339.
    pub created_utc: String,
    /// What the blocks hold.
    pub content: Content,
    /// Bytes of test data: planned in the first manifest, laid in the second.
    pub size: u64,
}

/// What stands in every manifest.
pub const MAGIC: &str = "nasgauge test data; safe to remove with 'nasgauge clean'";

/// What a run wants of a target.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The run.
    pub run_id: String,
    /// Now, UTC, RFC 3339.
    pub created_utc: String,
    /// What blocks will hold.
    pub content: Content,
    /// Bytes of the test file; 0 when there is to be none.
    pub size: u64,
    /// How many small files may stand at one time; 0 when there are to be none.
    pub small_files: u32,
    /// Bytes of room that they take.
    pub small_room: u64,
    /// Whether anything will be written beyond the laying.
    pub writes: bool,
    /// Bytes that the run may write in all, where known: for the space check.
    pub write_bytes: Option<u64>,
    /// A file of the user's to read instead.
    pub read_existing: Option<String>,
    /// Serial number of the device whose content may be destroyed.
    pub destroy: Option<String>,
    /// Leave the test data for the next run.
    pub keep: bool,
}

/// Where a session finds its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The file or mapping; empty for a device.
    pub name: String,
    /// First byte that may be used.
    pub base: u64,
    /// What its blocks hold.
    pub content: Content,
    /// The test data is there already: a prepared file, or the user's own.
    pub laid: bool,
    /// It belongs to the user and is only read.
    pub foreign: bool,
}

impl Object {
    /// The directory that holds it, where small files stand too; empty where there is none.
    #[must_use]
    pub fn directory(&self) -> &str {
        self.name
            .rsplit_once('/')
            .map_or("", |(directory, _)| directory)
    }
}

/// What the server's side can be shown, to prove that it has the same storage before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// The name of our directory; the run's random name is in it.
    Name(String),
    /// These bytes of ours stand at this offset of the device.
    Bytes {
        /// Where.
        offset: u64,
        /// What.
        content: Vec<u8>,
    },
}

/// A place that a run may use.
pub struct Site {
    control: Control,
    claim: Claim,
    object: Object,
    kind: Kind,
    /// Sentences about what was decided, for the user.
    pub notes: Vec<String>,
}

enum Kind {
    Directory(files::Directory),
    Device(Box<device::Extent>),
    Nothing,
}

impl Site {
    /// Inspects the target and refuses what could do harm. Nothing is written yet.
    pub fn examine(mut control: Control, claim: Claim) -> Result<Self> {
        let mut notes = Vec::new();
        let (kind, object) = match &mut control {
            Control::Files(files) => {
                let (directory, object) = files::examine(files.as_mut(), &claim, &mut notes)?;
                (Kind::Directory(directory), object)
            }
            Control::Device(device) => {
                let (extent, object) = device::examine(device.as_mut(), &claim, &mut notes)?;
                (Kind::Device(Box::new(extent)), object)
            }
            Control::Volatile(volatile) => {
                if claim.read_existing.is_some() {
                    return Err(Error::usage(
                        "--read-existing needs a target that holds data",
                    ));
                }
                let name = volatile.provide(claim.size)?;
                let object = Object {
                    name,
                    base: 0,
                    content: claim.content.clone(),
                    laid: false,
                    foreign: false,
                };
                (Kind::Nothing, object)
            }
        };
        Ok(Self {
            control,
            claim,
            object,
            kind,
            notes,
        })
    }

    /// Makes the directory and the empty file, or writes the device's manifest.
    pub fn enter(&mut self) -> Result<()> {
        match (&mut self.control, &mut self.kind) {
            (Control::Files(files), Kind::Directory(directory)) => {
                directory.enter(files.as_mut(), &self.claim, &mut self.object)
            }
            (Control::Device(device), Kind::Device(extent)) => {
                extent.enter(device.as_mut(), &self.claim, &self.object)
            }
            _ => Ok(()),
        }
    }

    /// Where sessions find the data.
    #[must_use]
    pub const fn object(&self) -> &Object {
        &self.object
    }

    /// What proves that somebody sees this very storage; None before it was entered, and where nothing of ours is there.
    pub fn proof(&self) -> Result<Option<Proof>> {
        match &self.kind {
            Kind::Directory(_) => {
                let directory = self.object.directory();
                let name = directory.rsplit('/').next().unwrap_or_default();
                Ok(name
                    .contains(&self.claim.run_id)
                    .then(|| Proof::Name(name.to_owned())))
            }
            Kind::Device(extent) => Ok(extent
                .proof()?
                .map(|content| Proof::Bytes { offset: 0, content })),
            Kind::Nothing => Ok(None),
        }
    }

    /// Notes that all test data is there: a later run may use it.
    pub fn laid(&mut self) -> Result<()> {
        self.object.laid = true;
        match (&mut self.control, &mut self.kind) {
            (Control::Files(files), Kind::Directory(directory)) => {
                directory.laid(files.as_mut(), &self.claim)
            }
            _ => Ok(()),
        }
    }

    /// The run that made it, with which names of small files begin.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.claim.run_id
    }

    /// The directory in which small files may be made; None where the target has none of ours.
    fn folder(&self) -> Option<&str> {
        match &self.kind {
            Kind::Directory(directory) => directory.folder(),
            Kind::Device(_) | Kind::Nothing => None,
        }
    }

    /// Our small files that are there, and how many entries the directory has in all; None where none can be.
    pub fn small_files(&mut self) -> Result<Option<files::Small>> {
        match (&mut self.control, &self.kind) {
            (Control::Files(files), Kind::Directory(directory)) => {
                directory.small_files(files.as_mut(), &self.claim)
            }
            _ => Ok(None),
        }
    }

    /// Removes one of our small files, by the number and name that [`Site::small_files`] found.
    pub fn remove_small(&mut self, number: u32, renamed: bool) -> Result<()> {
        self.with_small(number, renamed, |files, path| files.remove(path))
    }

    /// The size of one of our small files in bytes, as the target has it.
    pub fn small_size(&mut self, number: u32, renamed: bool) -> Result<u64> {
        self.with_small(number, renamed, |files, path| files.size(path))
    }

    /// Forgets what this computer caches of one of our small files, where it can.
    pub fn drop_small_cache(&mut self, number: u32, renamed: bool) -> Result<()> {
        self.with_small(number, renamed, |files, path| files.drop_cache(path))
    }

    fn with_small<T>(
        &mut self,
        number: u32,
        renamed: bool,
        act: impl FnOnce(&mut dyn crate::target::Files, &str) -> Result<T>,
    ) -> Result<T> {
        let none = || Error::safety("there are no small files of this run's here");
        let folder = self.folder().ok_or_else(none)?;
        let mut name = String::new();
        names::make(&mut name, &self.claim.run_id, number, renamed);
        let path = format!("{folder}/{name}");
        match &mut self.control {
            Control::Files(files) => act(files.as_mut(), &path),
            Control::Device(_) | Control::Volatile(_) => Err(none()),
        }
    }

    /// Notes how far anything was written, in bytes from the object's base.
    pub fn written_to(&mut self, high_water: u64) {
        if let Kind::Device(extent) = &mut self.kind {
            extent.high_water = extent.high_water.max(high_water);
        }
    }

    /// Bytes of the test file as the target has them; None where that means nothing.
    pub fn stored_size(&mut self) -> Result<Option<u64>> {
        match &mut self.control {
            Control::Files(files) => files.size(&self.object.name).map(Some),
            _ => Ok(None),
        }
    }

    /// Bytes of the test file that were never written; None where the target can't tell.
    pub fn unwritten(&mut self) -> Result<Option<u64>> {
        match &mut self.control {
            Control::Files(files) => files.unwritten(&self.object.name),
            _ => Ok(None),
        }
    }

    /// Forgets what this computer caches of the file, where it can.
    pub fn drop_cache(&mut self) -> Result<()> {
        match &mut self.control {
            Control::Files(files) => files.drop_cache(&self.object.name),
            _ => Ok(()),
        }
    }

    /// Brings to storage what was accepted and never flushed, as far as that can be asked for.
    pub fn write_back(&mut self) -> Result<()> {
        match &mut self.control {
            Control::Files(files) => files.write_back(&self.object.name),
            Control::Device(device) => device.flush(),
            Control::Volatile(_) => Ok(()),
        }
    }

    /// Whether something may go on behind the target after it answered: memory has no such thing.
    #[must_use]
    pub const fn is_storage(&self) -> bool {
        !matches!(self.control, Control::Volatile(_))
    }

    /// The alignment that direct I/O needs, where known.
    pub fn direct_alignment(&mut self) -> Result<Option<u64>> {
        match &mut self.control {
            Control::Files(files) => files.direct_alignment(&self.object.name),
            Control::Device(device) => device
                .identity()
                .map(|identity| Some(u64::from(identity.block))),
            Control::Volatile(_) => Ok(None),
        }
    }

    /// Whether every operation must be aligned, direct or not: a device has blocks.
    #[must_use]
    pub const fn always_aligned(&self) -> bool {
        matches!(self.control, Control::Device(_))
    }

    /// What the target says of itself.
    pub fn facts(&mut self) -> Result<Facts> {
        match &mut self.control {
            Control::Files(files) => files.facts(),
            Control::Device(device) => device.facts(),
            Control::Volatile(volatile) => volatile.facts(),
        }
    }

    /// Goes on over another connection to the same target, where the old one was lost.
    pub fn reopened(&mut self, control: Control) {
        self.control = control;
    }

    /// Removes everything of ours, or leaves the test data when it is to be kept. A sentence when something stays.
    pub fn leave(&mut self) -> Result<Option<String>> {
        match (&mut self.control, &mut self.kind) {
            (Control::Files(files), Kind::Directory(directory)) => {
                directory.leave(files.as_mut(), &self.claim)
            }
            (Control::Device(device), Kind::Device(extent)) => {
                extent.leave(device.as_mut(), &self.claim)
            }
            _ => Ok(None),
        }
    }
}

/// One thing of ours that an earlier run left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Directory name, or "device".
    pub name: String,
    /// Its manifest.
    pub manifest: Manifest,
}

/// What earlier runs left on a target.
pub fn leftovers(control: &mut Control) -> Result<Vec<Leftover>> {
    match control {
        Control::Files(files) => files::leftovers(files.as_mut()),
        Control::Device(device) => device::leftovers(device.as_mut()),
        Control::Volatile(_) => Ok(Vec::new()),
    }
}

/// Removes one leftover.
pub fn clean(control: &mut Control, leftover: &Leftover) -> Result<()> {
    match control {
        Control::Files(files) => files::clean(files.as_mut(), &leftover.name),
        Control::Device(device) => device::clean(device.as_mut(), &leftover.manifest),
        Control::Volatile(_) => Ok(()),
    }
}

impl Manifest {
    fn of(claim: &Claim, content: &Content, size: u64) -> Self {
        Self {
            nasgauge: MAGIC.into(),
            run_id: claim.run_id.clone(),
            created_utc: claim.created_utc.clone(),
            content: content.clone(),
            size,
        }
    }

    /// The manifest in these bytes, if it is one.
    fn read(bytes: &[u8]) -> Option<Self> {
        let end = bytes
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(bytes.len());
        serde_json::from_slice::<Self>(&bytes[..end])
            .ok()
            .filter(|manifest| manifest.nasgauge == MAGIC)
    }

    fn bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self)
            .map_err(|error| Error::safety(format!("a manifest does not serialise: {error}")))
    }
}

/// Content that suits a claim: the same kind of bytes, whatever its key.
fn same_kind(one: &Content, other: &Content) -> bool {
    let kind = |content: &Content| {
        (
            content.fill == Fill::Zero,
            content.compress_percent,
            content.dedupe_percent,
        )
    };
    kind(one) == kind(other)
}

#[cfg(test)]
pub(crate) fn test_claim() -> Claim {
    Claim {
        run_id: "20261130-120000-test".into(),
        created_utc: "2026-11-30T12:00:00Z".into(),
        content: Content {
            key: 5,
            fill: Fill::Incompressible,
            compress_percent: 0,
            dedupe_percent: 0,
        },
        size: 1 << 20,
        small_files: 0,
        small_room: 0,
        writes: true,
        write_bytes: None,
        read_existing: None,
        destroy: None,
        keep: false,
    }
}
