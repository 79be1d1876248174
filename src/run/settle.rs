//! The rest between a cell that wrote and the next one, so that the write-back of the one is no part of the other.
//!
//! What this computer still holds is brought to storage; a server's own caches, a pool's transactions and a disk's fast
//! region can't be seen from here, so time must do for them. Memory needs no rest, and reading leaves nothing to write.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::op::Durability;
use crate::run::site::Place;
use crate::run::{StepView, Watch};
use crate::spec::workload::Phase;
use crate::units::{Nanos, SECOND};

/// How often a rest looks up for a stop signal.
const LOOK: Duration = Duration::from_millis(50);
/// A rest from this length on is shown.
const SHOWN: Nanos = Nanos(5 * SECOND);

/// Rests after `phase`, which wrote to this place. A rest of 0 does nothing at all.
pub(super) fn settle(
    place: &mut Place,
    phase: &Phase,
    rest: Nanos,
    stop: &AtomicBool,
    watch: &mut dyn Watch,
) {
    let protocol = place.login.spec.protocol.clone();
    let Some(site) = place.site().filter(|site| rest.0 > 0 && site.is_storage()) else {
        return;
    };
    if phase.durability == Durability::None {
        // Any other workload has flushed. What can't be written back fails the next cell, with its reason.
        let _ = site.write_back();
    }
    if rest.0 >= SHOWN.0 {
        watch.begin(&StepView {
            label: format!("letting {protocol} come to rest"),
            number: None,
            seconds: Some(rest.seconds()),
            bytes: None,
        });
    }
    let end = Instant::now() + rest.duration();
    while !stop.load(Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(left.min(LOOK));
    }
}
