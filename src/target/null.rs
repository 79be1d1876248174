//! `null:` does nothing at all: what remains is this program's own overhead.

use crate::error::Result;
use crate::op::{Completion, Op, Submit};
use crate::slots::Slots;
use crate::target::{Attach, Caps, Control, Facts, Login, Protocol, Session, Threads, Volatile};

/// The registry line.
pub const PROTOCOL: Protocol = Protocol {
    name: "null",
    example: "null:",
    options: &[],
    check: |_| Ok(()),
    caps: |_| Caps {
        iodepth_max: 1,
        threads: Threads::Shared,
        control: Threads::Shared,
        flush: true,
        sync: true,
        stores: false,
        engine: "null",
        connections: 0,
        ceiling: None,
    },
    control: |_| Ok(Control::Volatile(Box::new(Nothing))),
    connect: |_: &Login, _: &Attach| Ok(Box::new(Nothing)),
    folder: None,
};

struct Nothing;

impl Volatile for Nothing {
    fn facts(&mut self) -> Result<Facts> {
        Ok(Facts {
            lines: vec![(
                "null".into(),
                "does nothing: measures nasgauge's own overhead".into(),
            )],
            ..Facts::default()
        })
    }

    fn provide(&mut self, _size: u64) -> Result<String> {
        Ok(String::new())
    }
}

impl Session for Nothing {
    fn submit(&mut self, op: Op, _slots: &mut Slots) -> Result<Submit> {
        Ok(Submit::Done(Completion {
            slot: op.slot,
            bytes: op.len,
        }))
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
