//! Controlled differences: one thing is changed, and all else stays.
//!
//! Sequential ones are measured on what the server's memory holds, where nothing but the way and the protocol can differ, and
//! held against the same there. A second pass over the file would come from memory anyway; random requests find new
//! places each time, so they are held against the workload itself. Must not know: what the figures say.

use super::bench::Around;
use super::scene::Scene;
use super::taken::Taken;
use crate::error::Result;
use crate::spec::diagnose::Work;
use crate::spec::workload::Phase;
use crate::verdict::rules::FROM_MEMORY;

/// Random requests wait for the way and then for the disks: only from so much on is nothing else to be tried.
const MEMORY_HELPS_MUCH: f64 = 3.0;

/// Measures what can be changed for this workload.
pub(super) fn make(
    scene: &mut Scene,
    work: &Work,
    taken: &mut Taken,
    around: &mut Around<'_, '_>,
) -> Result<()> {
    let hot = taken.hot.as_ref().and_then(super::bench::Measured::rate);
    let whole = taken.whole.rate();
    let helps = if work.phase.rw.random() {
        MEMORY_HELPS_MUCH
    } else {
        // The disks are the difference, and nothing on the way needs to be tried.
        FROM_MEMORY
    };
    let from_memory = hot
        .zip(whole)
        .is_some_and(|(hot, whole)| hot >= helps * whole);
    if hot.is_none() || from_memory || !scene.target.remote() {
        return Ok(());
    }
    let phase = if work.phase.rw.random() {
        scene.brief(work, around.plan)
    } else {
        scene.hot_phase(work, around.plan)
    };
    let deepest = scene.target.iodepth_max();
    let mut measure = |stage, phase: Option<Phase>| {
        phase.map_or(Ok(None), |phase| {
            scene.target.measure(&work.name, stage, phase, around)
        })
    };
    taken.half = measure("half_depth", half(&phase))?;
    if taken.half.is_none() {
        taken.double = measure("double_depth", Some(double(&phase, deepest)))?;
    }
    // With one request for each connection there is no other way to share them out.
    let second = second(&phase).filter(|_| deepest >= 2);
    taken.second = measure("second_connection", second)?;
    taken.alone = measure("alone", Some(alone(&phase)))?;
    Ok(())
}

/// Half as many requests under way; None where there is but one.
fn half(phase: &Phase) -> Option<Phase> {
    let mut half = phase.clone();
    if phase.iodepth >= 2 {
        half.iodepth = phase.iodepth / 2;
    } else if phase.lanes >= 2 {
        half.lanes = phase.lanes / 2;
    } else {
        return None;
    }
    Some(half)
}

/// Twice as many.
fn double(phase: &Phase, deepest: u16) -> Phase {
    let mut double = phase.clone();
    if deepest > phase.iodepth {
        double.iodepth = phase.iodepth * 2;
    } else {
        double.lanes = phase.lanes * 2;
    }
    double
}

/// The same number of requests on twice the connections; None where one request can't be on two.
fn second(phase: &Phase) -> Option<Phase> {
    (phase.iodepth >= 2).then(|| Phase {
        iodepth: phase.iodepth / 2,
        lanes: phase.lanes * 2,
        ..phase.clone()
    })
}

/// One request at a time.
fn alone(phase: &Phase) -> Phase {
    Phase {
        iodepth: 1,
        lanes: 1,
        ..phase.clone()
    }
}
