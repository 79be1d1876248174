//! Small files around a cell: those that it needs stand there before it, and what it claims stands there after it.
//!
//! None of this is measured. The judge is a listing by the control side, another connection than the workers'.

use std::sync::atomic::Ordering::Relaxed;

use crate::engine::{FileJob, Job};
use crate::error::{Error, Kind, Phase as Step, Result};
use crate::op::{Durability, FileOp};
use crate::payload::Content;
use crate::run::cell::{self, Context};
use crate::run::drive::{Driven, drive};
use crate::run::site::Place;
use crate::run::{StepView, Watch};
use crate::spec::workload::{Files, Phase, Rw};
use crate::units::Nanos;

/// Files whose sizes are looked up after they were made, spread over all of them.
const SAMPLE: usize = 20;

/// The small files that stand in a place's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Laid {
    files: Files,
    content: Content,
}

/// Brings about what a phase on small files finds: none of them when it makes them, else all of them, laid anew unless
/// an equal phase left them. None for a phase on blocks.
pub(super) fn ready(
    context: &Context<'_>,
    place: &mut Place,
    phase: &Phase,
    watch: &mut dyn Watch,
) -> Result<Option<FileJob>> {
    let (Some(files), Some(op)) = (phase.files, phase.rw.file_op()) else {
        return Ok(None);
    };
    let Some(site) = place.site() else {
        return Ok(None);
    };
    let mut job = FileJob {
        run: site.run_id().to_owned(),
        renamed: false,
        entries: None,
    };
    // A target that stores nothing has them as good as any.
    let Some(mut small) = site.small_files()? else {
        return Ok(Some(job));
    };
    let wanted = Laid {
        files,
        content: phase.content(0),
    };
    let fit = place.laid.as_ref() == Some(&wanted) && whole(&small.present, files).is_some();
    if op == FileOp::Create || !fit {
        remove(context, place, &small.present)?;
        place.laid = None;
    }
    if op != FileOp::Create && !fit {
        lay(context, place, phase, files, &job, watch)?;
        let found = place.site().map(crate::guard::Site::small_files);
        small = found.transpose()?.flatten().unwrap_or_default();
    }
    if op != FileOp::Create {
        job.renamed = whole(&small.present, files).ok_or_else(|| {
            let message = format!(
                "{} were made, but a listing shows {}",
                files,
                small.present.len()
            );
            Error::new(Step::Prepare, Kind::Corrupt, message)
        })?;
        job.entries = Some(small.entries);
    }
    place.laid = Some(wanted);
    if op == FileOp::Open && place.caps.connections == 0 {
        forget(context, place, &small.present);
    }
    Ok(Some(job))
}

/// Which of their names all files have; None unless all are there, under one kind of name.
fn whole(present: &[(u32, bool)], files: Files) -> Option<bool> {
    let renamed = present.first()?.1;
    let fits = |(number, second): &(u32, bool)| *number < files.nrfiles && *second == renamed;
    (present.len() == files.nrfiles as usize && present.iter().all(fits)).then_some(renamed)
}

fn stopped(context: &Context<'_>) -> Result<()> {
    if context.stop.load(Relaxed) {
        return Err(Error::new(
            Step::Prepare,
            Kind::Interrupted,
            "stopped on request",
        ));
    }
    Ok(())
}

fn remove(context: &Context<'_>, place: &mut Place, present: &[(u32, bool)]) -> Result<()> {
    for (number, renamed) in present {
        stopped(context)?;
        if let Some(site) = place.site() {
            site.remove_small(*number, *renamed)?;
        }
    }
    Ok(())
}

/// Has the kernel forget what it caches of the files. What can't be forgotten shows in the device's counters.
fn forget(context: &Context<'_>, place: &mut Place, present: &[(u32, bool)]) {
    for (number, renamed) in present {
        if stopped(context).is_err() {
            return;
        }
        if let Some(site) = place.site() {
            let _ = site.drop_small_cache(*number, *renamed);
        }
    }
}

/// Makes all files, as a phase would, but outside of any measured time.
fn lay(
    context: &Context<'_>,
    place: &mut Place,
    phase: &Phase,
    files: Files,
    job: &FileJob,
    watch: &mut dyn Watch,
) -> Result<()> {
    watch.begin(&StepView {
        label: format!("laying {files} on {}", place.login.spec.protocol),
        number: None,
        seconds: None,
        bytes: Some(files.bytes()).filter(|bytes| *bytes > 0),
    });
    let laying = Phase {
        rw: Rw::Create,
        runtime: None,
        ramp_time: Nanos(0),
        durability: Durability::None,
        ..phase.clone()
    };
    let object = place.object().map_err(Clone::clone)?;
    let jobs = cell::jobs(context, &place.caps, &laying, object, Some(job));
    // The first generation, as a test file is laid.
    let jobs = jobs.into_iter().map(|job| Job {
        generation: None,
        ..job
    });
    let driven = drive(place, jobs.collect(), context.stop, watch, &mut |_, _| {
        Ok(())
    })?;
    if let Some(error) = driven.error() {
        return Err(Error {
            phase: Step::Prepare,
            ..error
        });
    }
    stopped(context)
}

/// After the phase: what the server holds, when it is not what it claimed. `job` is what the phase found before it.
pub(super) fn check(
    place: &mut Place,
    phase: &Phase,
    job: &FileJob,
    driven: &Driven,
) -> Option<Error> {
    let (files, op) = (phase.files?, phase.rw.file_op()?);
    if op.direction() == crate::op::Direction::Read {
        return None;
    }
    let site = place.site()?;
    let small = site.small_files().ok()??;
    let wrong = |message| Some(Error::new(Step::Flush, Kind::Corrupt, message));
    let (there, ops) = (small.present.len() as u64, driven.ops());
    match op {
        FileOp::Create if there < ops => {
            return wrong(format!(
                "{ops} files were made, but a listing shows {there}"
            ));
        }
        FileOp::Remove if there > u64::from(files.nrfiles).saturating_sub(ops) => {
            return wrong(format!(
                "{ops} of {} files were removed, but a listing still shows {there}",
                files.nrfiles
            ));
        }
        // With a runtime they may have got their names back.
        FileOp::Rename if phase.runtime.is_none() => {
            let renamed = small
                .present
                .iter()
                .filter(|(_, second)| *second != job.renamed);
            let renamed = renamed.count() as u64;
            if renamed < ops {
                return wrong(format!(
                    "{ops} files were renamed, but a listing shows {renamed} new names"
                ));
            }
        }
        _ => {}
    }
    // A file that failed on its way may be shorter.
    if op != FileOp::Create || driven.error().is_some() {
        return None;
    }
    let step = small.present.len().div_ceil(SAMPLE).max(1);
    small
        .present
        .iter()
        .step_by(step)
        .find_map(|(number, renamed)| {
            let held = site.small_size(*number, *renamed).ok()?;
            if held == files.filesize.0 {
                return None;
            }
            wrong(format!(
                "{} bytes of file {number} were accepted, but the server holds {held}",
                files.filesize.0
            ))
        })
}

/// What time kept a phase from doing, for the user; None when all was done.
pub(super) fn cut_short(phase: &Phase, driven: &Driven) -> Option<String> {
    let (files, op) = (phase.files?, phase.rw.file_op()?);
    let whole = driven.error().is_some() || driven.stopped();
    let ops = driven.ops();
    let short = op.finite() && phase.runtime.is_some() && !whole && ops < u64::from(files.nrfiles);
    short.then(|| {
        format!(
            "the runtime ended it after {ops} of {} files",
            files.nrfiles
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    #[test]
    fn files_are_whole_when_all_have_one_kind_of_name() {
        let files = Files {
            nrfiles: 2,
            filesize: Bytes(0),
        };
        assert_eq!(whole(&[(0, true), (1, true)], files), Some(true));
        assert_eq!(whole(&[(1, false), (0, false)], files), Some(false));
        for broken in [
            &[][..],
            &[(0, false)],
            &[(0, false), (1, true)],
            &[(0, false), (2, false)],
        ] {
            assert_eq!(whole(broken, files), None, "{broken:?}");
        }
    }
}
