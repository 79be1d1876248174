//! Drives sessions as the engine does: slots kept full, completions reaped, every byte looked at.

use nasgauge::error::Result;
use nasgauge::op::{Completion, Direction, Durability, Op, Submit};
use nasgauge::slots::Slots;
use nasgauge::target::{self, Attach, Control, Login, Session};

use super::lab::Place;

/// The largest block that these tests move.
pub const BLOCK_MAX: u32 = (1 << 20) + 4096;

/// Somewhere to write: a file made for it, the first bytes of a device, or memory.
pub struct Ground {
    control: Control,
    /// What sessions attach to.
    pub object: String,
    /// Offsets and lengths must be multiples of this.
    pub unit: u32,
    /// The size, when it is fixed.
    pub capacity: Option<u64>,
}

const DIRECTORY: &str = "conformance";
const OBJECT: &str = "conformance/data";

impl Ground {
    /// Makes room at a place; `size` counts only where room has a size from the start.
    pub fn make(place: &Place, size: u64) -> Self {
        let mut control = place.control();
        let (object, unit, capacity) = match &mut control {
            Control::Files(files) => {
                files.make_directory(DIRECTORY).expect("new");
                files.create(OBJECT).expect("new");
                (OBJECT.to_owned(), 1, None)
            }
            Control::Device(device) => {
                let identity = device.identity().expect("tells");
                (String::new(), identity.block, Some(identity.capacity))
            }
            Control::Volatile(volatile) => (volatile.provide(size).expect("room"), 1, Some(size)),
        };
        Self {
            control,
            object,
            unit,
            capacity,
        }
    }

    /// The size that the server has.
    pub fn size(&mut self) -> Option<u64> {
        match &mut self.control {
            Control::Files(files) => Some(files.size(&self.object).expect("there")),
            _ => None,
        }
    }

    /// Removes it again.
    pub fn remove(mut self) {
        if let Control::Files(files) = &mut self.control {
            files.remove(OBJECT).expect("removed");
            files.remove_directory(DIRECTORY).expect("removed");
        }
    }

    /// How one worker attaches to it.
    pub fn attach(&self, write: bool, iodepth: u16) -> Attach {
        Attach {
            object: self.object.clone(),
            write,
            direct: false,
            durability: Durability::Flush,
            iodepth,
            block_max: BLOCK_MAX,
            lane: 0,
            round: 1,
        }
    }
}

/// A connected session with its buffers.
pub struct Worker {
    /// Dropped before the buffers that the kernel may still fill.
    pub session: Box<dyn Session>,
    slots: Slots,
    free: Vec<u16>,
    flying: Vec<Option<Op>>,
    done: Vec<Completion>,
}

impl Worker {
    /// Connects.
    pub fn connect(login: &Login, attach: &Attach) -> Result<Self> {
        let protocol = target::check(&login.spec)?;
        // libsmbclient can't flush, so it must not be asked for durable writes.
        let attach = Attach {
            durability: if (protocol.caps)(&login.spec).flush {
                attach.durability
            } else {
                Durability::None
            },
            ..attach.clone()
        };
        let mut session = (protocol.connect)(login, &attach)?;
        let depth = attach.iodepth;
        let mut slots = Slots::new(depth, attach.block_max as usize).expect("memory");
        session.prepare(&mut slots)?;
        Ok(Self {
            session,
            slots,
            free: (0..depth).collect(),
            flying: vec![None; usize::from(depth)],
            done: Vec::with_capacity(usize::from(depth)),
        })
    }

    /// Moves pieces of (offset, length), as many under way as there are slots: `fill` makes what is written, `seen`
    /// gets each offset with the bytes that were really moved.
    pub fn transfer(
        &mut self,
        direction: Direction,
        pieces: impl IntoIterator<Item = (u64, u32)>,
        fill: &mut dyn FnMut(u64, &mut [u8]),
        seen: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<()> {
        for (offset, len) in pieces {
            let slot = loop {
                match self.free.pop() {
                    Some(slot) => break slot,
                    None => self.reap(seen)?,
                }
            };
            let op = Op {
                direction,
                offset,
                len,
                slot,
            };
            let buffer = self.slots.get_mut(slot, len);
            if direction == Direction::Write {
                fill(offset, buffer);
            } else {
                // Whatever is not really read must not look right by chance.
                buffer.fill(0xEE);
            }
            self.flying[usize::from(slot)] = Some(op);
            if let Submit::Done(completion) = self.session.submit(op, &mut self.slots)? {
                self.complete(completion, seen);
            }
        }
        while self.flying.iter().any(Option::is_some) {
            self.reap(seen)?;
        }
        Ok(())
    }

    fn reap(&mut self, seen: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let mut done = std::mem::take(&mut self.done);
        self.session.reap(None, &mut self.slots, &mut done)?;
        assert!(!done.is_empty(), "a reap that returns has something");
        for completion in done.drain(..) {
            self.complete(completion, seen);
        }
        self.done = done;
        Ok(())
    }

    fn complete(&mut self, completion: Completion, seen: &mut dyn FnMut(u64, &[u8])) {
        let op = self.flying[usize::from(completion.slot)]
            .take()
            .expect("a completion of what is under way");
        assert!(completion.bytes <= op.len);
        self.free.push(completion.slot);
        seen(op.offset, self.slots.get(completion.slot, completion.bytes));
    }

    /// Writes pieces of the pattern `salt` and checks that all of each was taken.
    pub fn write(&mut self, pieces: &[(u64, u32)], salt: u64) {
        let mut moved = 0;
        self.transfer(
            Direction::Write,
            pieces.iter().copied(),
            &mut |offset, block| pattern(offset, salt, block),
            &mut |_, block| moved += block.len(),
        )
        .expect("writes");
        let asked: usize = pieces.iter().map(|(_, len)| *len as usize).sum();
        assert_eq!(moved, asked);
    }

    /// Reads pieces and checks that they hold the pattern `salt`, whole.
    pub fn verify(&mut self, pieces: &[(u64, u32)], salt: u64) {
        let mut moved = 0;
        let mut expected = Vec::new();
        self.transfer(
            Direction::Read,
            pieces.iter().copied(),
            &mut |_, _| {},
            &mut |offset, block| {
                expected.resize(block.len(), 0);
                pattern(offset, salt, &mut expected);
                let wrong = block.iter().zip(&expected).position(|(a, b)| a != b);
                assert_eq!(wrong, None, "{} bytes at {offset}", block.len());
                moved += block.len();
            },
        )
        .expect("reads");
        let asked: usize = pieces.iter().map(|(_, len)| *len as usize).sum();
        assert_eq!(moved, asked, "some bytes are missing");
    }

    /// Reads one piece and gives what came.
    pub fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>> {
        let mut found = Vec::new();
        self.transfer(
            Direction::Read,
            [(offset, len)],
            &mut |_, _| {},
            &mut |_, block| found.extend_from_slice(block),
        )?;
        Ok(found)
    }
}

/// Bytes that differ from place to place and from salt to salt, made without the code under test.
pub fn pattern(offset: u64, salt: u64, block: &mut [u8]) {
    for (at, byte) in (offset..).zip(block) {
        let word = (at / 8 + 1)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .wrapping_add(salt.wrapping_mul(0xD1B5_4A32_D192_ED03));
        let word = word ^ (word >> 29);
        *byte = (word >> (at % 8 * 8)) as u8;
    }
}
